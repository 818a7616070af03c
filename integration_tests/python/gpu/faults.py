"""Every HIP call fails once in turn: a clear error or a right result, nothing is left behind, and what comes after works."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import Callable, Iterator

import emulated_gpu
import provider
from gpu import children, device, networks
from runner import Failure, check

SHAPE = [1, 3, 10, 10]
# Of the calls that a session makes while its program is built, one in so many: thousands are MIOpen's. GPU_FAULTS=all takes each.
STRIDE = 7
LATE_US = 300
# Images whose tensors are beyond what memory for one leaves free.
MANY = 1024
# A process that hangs is ended after so many seconds.
PATIENCE = 60
FINE = "nothing was raised"


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "every call of a run", lambda: children.run(sweep_runs, "single")
    yield "every call of a run with a node of the CPU provider between", lambda: children.run(sweep_runs, "interrupted")
    yield "calls while a session is made and first run", lambda: children.run(sweep_sessions)
    yield "a kernel that faults is an error of its run, and later sessions fail clearly", lambda: children.run(faulted_kernel)
    yield "a process that was forked gets an error at its sessions and runs, and the other goes on", lambda: children.run(forked)
    yield "too little memory is an error that tells how much was wanted", lambda: children.run(out_of_memory)
    yield "a session works again once there is enough memory", lambda: children.run(memory_comes_back, MIOPEN_DEBUG_CONV_GEMM="0")


def model(name: str) -> bytes:
    return getattr(networks, name)(SHAPE)


def clear(problem: Exception) -> None:
    """The error of a provider: ONNX Runtime's own exception, with a text of ours that names what failed."""
    text = str(problem)
    check(device.is_error_of_runtime(problem), f"{type(problem).__module__}.{type(problem).__name__}: {text}")
    check("hip" in text.lower() or "miopen" in text.lower() or "hipDNN" in text, f"the error does not say what failed: {text}")


def announce(nth: int) -> None:
    """For who reads the end of what a process said that died."""
    print(f"call {nth} is made to fail", file=sys.stderr, flush=True)


def sweep_runs(name: str) -> None:
    """Fails the first call of a run, then the second, and so on, until a run is through before its turn."""
    session, feeds = device.session(model(name)), networks.images(SHAPE)
    wanted = networks.expected(model(name), feeds)
    for _ in range(3):
        wanted.meets(session.run(feeds))
    gc.collect()
    living = emulated_gpu.counters().living()
    problems, nth, failed = [], 0, True
    while failed:
        nth += 1
        announce(nth)
        before = emulated_gpu.counters().injected_failures
        try:
            # Late work shows what is released under it when the call that would have waited for it failed.
            with emulated_gpu.failing("*", nth), emulated_gpu.delays(LATE_US, nth):
                try:
                    got = session.run(feeds)
                except Exception as problem:
                    clear(problem)
                else:
                    wanted.meets(got)
            failed = emulated_gpu.counters().injected_failures > before
            wanted.meets(session.run(feeds))
        except Failure as problem:
            problems.append(f"call {nth}: {problem}")
            failed = emulated_gpu.counters().injected_failures > before
    check(nth > 3, f"a run makes only {nth - 1} calls")
    gc.collect()
    now = emulated_gpu.counters().living()
    # Staging memory and streams may have been replaced, but not become more.
    grown = {key: now[key] - living[key] for key in now if now[key] > living[key]}
    if grown:
        problems.append(f"left behind by the runs: {grown}")
    del session
    check(not problems, f"of {nth - 1} calls: " + "; ".join(problems[:5]))


def sweep_sessions() -> None:
    """The same with calls of making a session, its first run and releasing it. What a session leaves is compared with one that nothing failed."""
    source, feeds = model("interrupted"), networks.images(SHAPE)
    wanted = networks.expected(source, feeds)

    def once() -> None:
        session = device.session(source)
        wanted.meets(session.run(feeds))

    once()
    once()
    gc.collect()
    living, calls = emulated_gpu.counters().living(), emulated_gpu.call_count()
    once()
    gc.collect()
    calls = emulated_gpu.call_count() - calls
    problems = []
    for nth in range(1, calls + 1, 1 if os.environ.get("GPU_FAULTS") == "all" else STRIDE):
        announce(nth)
        try:
            with emulated_gpu.failing("*", nth), emulated_gpu.delays(LATE_US, nth):
                try:
                    once()
                except Failure:
                    raise
                except Exception as problem:
                    clear(problem)
            gc.collect()
            now = emulated_gpu.counters().living()
            check(all(now[key] <= living[key] for key in now), f"left behind: {living} became {now}")
        except Failure as problem:
            problems.append(f"call {nth}: {problem}")
    try:
        once()
    except Exception as problem:
        problems.append(f"afterwards: {problem}")
    check(not problems, f"{len(problems)} problems of {calls} calls: " + "; ".join(problems[:5]))


def faulted_kernel() -> None:
    session, feeds = device.session(model("single")), networks.images(SHAPE)
    session.run(feeds)
    illegal_address = 700
    with emulated_gpu.failing("kernel", 1, illegal_address):
        try:
            session.run(feeds)
        except Exception as problem:
            clear(problem)
        else:
            raise Failure("a run whose kernel failed gave a result")
    try:
        networks.expected(model("single"), feeds).meets(session.run(feeds))
    except Failure:
        raise
    except Exception as problem:
        # A device that is lost stays lost.
        clear(problem)


def out_of_memory() -> None:
    device.devices()
    with emulated_gpu.memory_limit(1 << 12):
        try:
            device.session(networks.resnet_like([1, 3, 32, 32])).run(networks.images([1, 3, 32, 32]))
        except Exception as problem:
            check(device.is_error_of_runtime(problem), f"{type(problem)}: {problem}")
            check("memory" in str(problem) and any(character.isdigit() for character in str(problem)), f"{problem}")
            return
    raise Failure("a network ran in 4 KiB")


def memory_comes_back() -> None:
    source, feeds = networks.resnet_like(["n", 3, 32, 32]), networks.images([1, 3, 32, 32])
    session = device.session(source)
    wanted = networks.expected(source, feeds)
    wanted.meets(session.run(feeds))
    many = networks.images([MANY, 3, 32, 32])
    with emulated_gpu.memory_limit(emulated_gpu.counters().live_bytes + (1 << 16)):
        try:
            session.run(many)
        except Exception as problem:
            # Without room to try solvers MIOpen's first choice is called; matrix products have no kernels here. Of what ONNX Runtime
            # allocates itself it says no more; the provider tells the log.
            said = ("memory", "GEMM", "Allocation failed")
            check(any(word in str(problem) for word in said), f"{problem}")
        else:
            raise Failure(f"{MANY} images ran in 64 KiB more than one")
        wanted.meets(session.run(feeds))
    networks.expected(source, networks.images([2, 3, 32, 32])).meets(session.run(networks.images([2, 3, 32, 32])))


def forked() -> None:
    session = alone()
    feeds = networks.images(SHAPE)
    wanted = networks.expected(model("single"), feeds)
    wanted.meets(session.run(feeds))
    said = told_by_fork(lambda: session.run(feeds))
    check("fork" in said, f"a run in a process that was forked: {said}")
    # A session that is made there may do without the device.
    said = told_by_fork(lambda: wanted.meets(alone().run(feeds)))
    check("fork" in said or said == FINE, f"a session in a process that was forked: {said}")
    wanted.meets(session.run(feeds))
    wanted.meets(device.session(model("single")).run(feeds))


def alone() -> provider.Session:
    """A session whose runs wait for no other thread: one thread alone comes through a fork."""
    return provider.Session(model("single"), session_options=provider.options(threads=1), on=[device.device()])


def told_by_fork(body: Callable[[], object]) -> str:
    """What the body raises in a process that is forked for it, which ends without clearing up."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        try:
            body()
            said = FINE
        except Exception as problem:
            said = str(problem)
        os.write(writer, said.encode()[:2000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read().decode()
    _, status = os.waitpid(child, 0)
    return f"ended with signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else said
