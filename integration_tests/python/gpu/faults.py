"""Every HIP call fails once in turn: a clear error or a right result, nothing is left behind, and what comes after works.

All calls of a run are taken, of its capture and its replay too. Making a session makes hundreds of calls: a sample (`gpu.extent`) takes each
kind, a function behind another one, at its first and its last call; a thin one each function at its first call.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import onnxruntime as ort

import compiled_models
import emulated_gpu
import provider
from gpu import capture, children, device, extent, networks
from runner import Failure, Skip, check

SHAPE = [1, 3, 10, 10]
LATE_US = 300
# Images whose tensors are beyond what memory for one leaves free.
MANY = 1024
# A process that hangs is ended after so many seconds.
PATIENCE = 600
FINE = "nothing was raised"


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "every call of a run", lambda: children.run(sweep_runs, "single")
    yield "every call of a run with a node of the CPU provider between", lambda: children.run(sweep_runs, "interrupted")
    yield "every call of a run that is captured, and of its replay", lambda: children.run(sweep_captures)
    yield "every call of a run with bound memory on the application's stream", lambda: children.run(sweep_lent_stream)
    yield "every call of values that come, are copied and go", lambda: children.run(sweep_values)
    yield "every call of copies between two devices", lambda: children.run(sweep_two_devices, HIPEMU_DEVICES="2")
    for name in ("plain", "searching", "profiled", "compiled", "restored"):
        run = children.run_at_home if name == "restored" else children.run
        yield f"calls while a {name} session is made and first run", lambda name=name, run=run: run(sweep_sessions, name)
    yield "a kernel that faults is an error of its run, and later sessions fail clearly", lambda: children.run(faulted_kernel)
    yield "a process that was forked gets an error at its sessions and runs, and the other goes on", lambda: children.run(forked)
    yield "too little memory is an error that tells how much was wanted", lambda: children.run(out_of_memory)
    yield "a session works again once there is enough memory", lambda: children.run(memory_comes_back, MIOPEN_DEBUG_CONV_GEMM="0")


def model(name: str) -> bytes:
    return getattr(networks, name)(SHAPE)


def announce(nth: int) -> None:
    """For who reads the end of what a process said that died."""
    print(f"call {nth} is made to fail", file=sys.stderr, flush=True)


def each_fails(body: Callable[[], None], calls: Iterable[int], after: Callable[[], None] = lambda: None) -> tuple[int, list[str]]:
    """Runs `body`, which checks its result, with one of its calls failing; again with the next, until one is not made any more.

    How many failed, and what was wrong: a result, an error that is not clear, something left behind, or `after`, which fails nothing.
    """
    gc.collect()
    living, problems, failed = emulated_gpu.counters().living(), [], 0
    for nth in calls:
        announce(nth)
        before = emulated_gpu.counters().injected_failures
        try:
            # Late work shows what is released under it when the call that would have waited for it failed.
            with emulated_gpu.failing("*", nth), emulated_gpu.delays(LATE_US, nth):
                device.right_or_clear(body)
            after()
            gc.collect()
            now = emulated_gpu.counters().living()
            grown = {key: now[key] - living[key] for key in now if now[key] > living[key]}
            check(not grown, f"left behind: {grown}")
        except Exception as problem:
            problems.append(f"call {nth}: {problem}")
        if emulated_gpu.counters().injected_failures == before:
            break
        failed += 1
    try:
        body()
    except Exception as problem:
        problems.append(f"afterwards: {problem}")
    return failed, problems


def none_wrong(failed: int, problems: list[str], least: int) -> None:
    print(f"{failed} calls failed in turn", flush=True)
    check(failed >= least, f"only {failed} calls are made")
    check(not problems, f"{len(problems)} problems of {failed} calls: " + "; ".join(problems[:5]))


def every() -> Iterable[int]:
    return range(1, 1_000_000)


def of_each_kind(body: Callable[[], None]) -> Iterable[int]:
    """Numbers of the calls that a function makes, as far as they are taken."""
    with emulated_gpu.traced() as trace:
        body()
    names = [line["call"] for line in trace.calls()]
    chosen = extent.chosen()
    if chosen == "all":
        return range(1, len(names) + 1)
    if chosen == "thin":
        return sorted({names.index(name) + 1 for name in names})
    places: dict[tuple[str, str], list[int]] = {}
    for nth, kind in enumerate(zip(["", *names], names), 1):
        places.setdefault(kind, []).append(nth)
    return sorted({nth for found in places.values() for nth in (found[0], found[-1])})


def sweep_runs(name: str) -> None:
    session, feeds = device.session(model(name)), networks.images(SHAPE)
    wanted = networks.expected(model(name), feeds)

    def run() -> None:
        wanted.meets(session.run(feeds))

    for _ in range(3):
        run()
    none_wrong(*each_fails(run, every(), run), least=3)


def sweep_captures() -> None:
    bound = capture.captured(networks.single(capture.SHAPE))
    graph = 0

    def run() -> None:
        """Captured, then replayed."""
        for seed in range(3):
            bound.run(seed, graph)

    def release() -> None:
        nonlocal graph
        bound.session.session.release_captured_graph(graph)
        graph += 1
        run()
        bound.session.session.release_captured_graph(graph)
        graph += 1

    if not hasattr(bound.session.session, "release_captured_graph"):
        raise Skip(f"ONNX Runtime {ort.__version__} releases no captured runs")
    run()
    release()
    none_wrong(*each_fails(run, every(), release), least=5)


def sweep_lent_stream() -> None:
    with capture.stream() as address:
        bound = capture.Bound(model("single"), SHAPE, user_compute_stream=str(address))
        for seed in range(3):
            bound.run(seed)
        none_wrong(*each_fails(lambda: bound.run(4), every(), lambda: bound.run(5)), least=3)
        del bound
        gc.collect()


def sweep_values() -> None:
    content = networks.images(SHAPE)["x"]

    def there_and_back() -> None:
        value = device.on_device(content)
        other = device.empty_on_device(content.shape)
        if hasattr(ort, "copy_tensors"):
            ort.copy_tensors([value], [other])
            value = other
        check(bool((value.numpy() == content).all()), "a value changed on its way")

    there_and_back()
    none_wrong(*each_fails(there_and_back, every()), least=2)


def sweep_two_devices() -> None:
    content = networks.images(SHAPE)["x"]
    first, second = device.on_device(content, 0), device.empty_on_device(content.shape, index=1)

    def across() -> None:
        for source, target in ((first, second), (second, first)):
            ort.copy_tensors([source], [target])
        check(bool((first.numpy() == content).all()), "a value changed on its way")

    across()
    none_wrong(*each_fails(across, every()), least=3)


def sweep_sessions(kind: str) -> None:
    """Calls of making a session, its first run and releasing it."""
    source, feeds = model("interrupted"), networks.images(SHAPE)
    wanted = networks.expected(source, feeds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written, _ = compiled_models.compiled(source, folder, embed=False)

        def made() -> Any:
            if kind == "profiled":
                options = provider.options()
                options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
                return provider.Session(source, {"cost_rule": "0"}, options, on=[device.device()])
            if kind == "searching":
                # Everything is compiled, tried and timed.
                return device.session(source, cache_dir="off", tuning="benchmark")
            if kind == "compiled":
                # ONNX Runtime writes over no compiled model.
                again = folder / "again.onnx"
                again.unlink(missing_ok=True)
                return compiled_models.open_model(folder / "model.onnx", **compiled_models.compiling(again, embed=False))
            return compiled_models.open_model(written) if kind == "restored" else device.session(source)

        def once() -> None:
            session = made()
            wanted.meets(session.run(feeds))
            if kind == "profiled":
                session.session.end_profiling()

        for _ in range(2):
            once()
        none_wrong(*each_fails(once, of_each_kind(once)), least=20)


def faulted_kernel() -> None:
    session, feeds = device.session(model("single")), networks.images(SHAPE)
    session.run(feeds)
    illegal_address = 700
    with emulated_gpu.failing("kernel", 1, illegal_address):
        try:
            session.run(feeds)
        except Exception as problem:
            device.clear(problem)
        else:
            raise Failure("a run whose kernel failed gave a result")
    # A device that is lost stays lost.
    device.right_or_clear(lambda: networks.expected(model("single"), feeds).meets(session.run(feeds)))


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
