"""What runs do after the first ones: no allocation, no waiting but for results, no growth."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Callable, Iterator

import numpy as np

import emulated_gpu
from gpu import device, networks
from runner import Failure, check

# Functions that no run may call once a session has warmed up: they allocate, release, load or wait for a whole device.
FORBIDDEN = ("hipMalloc", "hipExtMallocWithFlags", "hipMallocAsync", "hipFree", "hipFreeAsync", "hipHostMalloc", "hipHostFree",
             "hipHostRegister", "hipHostUnregister", "hipMallocManaged", "hipModuleLoad", "hipModuleLoadData", "hipModuleLoadDataEx",
             "hipModuleUnload", "hipDeviceSynchronize", "hipStreamCreate", "hipStreamCreateWithFlags", "hipStreamCreateWithPriority",
             "hipStreamDestroy", "hipEventCreate", "hipEventCreateWithFlags", "hipEventDestroy", "hipMemcpy", "hipMemset",
             "hipGraphInstantiate", "hipGraphInstantiateWithFlags", "hipGraphExecDestroy", "hipStreamBeginCapture")
WAITS = ("hipStreamSynchronize", "hipEventSynchronize", "hipMemcpyWithStream", "hipDeviceSynchronize", "hipMemcpy")
WARM_UP = 3
RUNS = 1000
# Of the whole process: far below one page a run, far above what an allocator may keep back once.
GROWTH_BYTES = 2 << 20


def cases(cache: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for name, make in (("Conv", networks.single), ("a ResNet-like network", networks.resnet_like), ("a MobileNet-like network", networks.mobilenet_like)):
        yield f"{name}: a run with bound memory waits once, at its end", lambda make=make: waits(make([1, 3, 32, 32]))
        yield f"{name}: a run on host memory allocates nothing and waits for its copies alone", lambda make=make: host_memory(make([1, 3, 32, 32]))
    yield "runs on the same memory are replayed: they see what is there now, and a launch that fails names its node", replayed
    yield "free extents that come back allocate nothing", free_extents
    yield f"{RUNS} runs with bound memory and {RUNS} on host memory allocate nothing, wait at their end, and grow in nothing", no_growth
    yield "sessions that come and go leave nothing", come_and_go


def refused(trace: emulated_gpu.Trace) -> None:
    wrong = sorted({line["call"] for line in trace.calls(*FORBIDDEN)})
    check(not wrong, f"a run calls {', '.join(wrong)}")


def waits(model: bytes) -> None:
    shape = [1, 3, 32, 32]
    session = device.session(model)
    wanted = networks.expected(model, networks.images(shape))
    y = device.empty_on_device(wanted.exact[0].shape)
    binding = device.bound(session, device.on_device(networks.images(shape)["x"]), y)
    for _ in range(WARM_UP):
        session.session.run_with_iobinding(binding)
    with emulated_gpu.traced() as trace:
        session.session.run_with_iobinding(binding)
    refused(trace)
    waited = trace.calls(*WAITS)
    check(len(waited) <= 1, f"{[line['call'] for line in waited]}")
    last = max(index for index, line in enumerate(trace.lines) if line.get("call", "").startswith(("hipModuleLaunch", "hipExtModuleLaunch", "hipGraphLaunch")))
    check(all(trace.lines.index(line) > last for line in waited), "the run waits before its last launch")
    check(not trace.work("copy"), f"{len(trace.work('copy'))} copies")
    wanted.meets([y.numpy()])


def replayed() -> None:
    shape = [1, 3, 32, 32]
    # Several plans.
    model = networks.mobilenet_like(shape)
    session = device.session(model)
    inputs = [networks.images(shape, seed) for seed in (1, 2)]
    wanted = [networks.expected(model, feeds) for feeds in inputs]
    x = [device.on_device(feeds["x"]) for feeds in inputs]
    y = [device.empty_on_device(wanted[0].exact[0].shape) for _ in range(2)]
    bindings = {(i, o): device.bound(session, x[i], y[o]) for i in range(2) for o in range(2)}

    def run(i: int, o: int) -> dict[str, int]:
        work = device.used(lambda: session.session.run_with_iobinding(bindings[i, o]))
        wanted[i].meets([y[o].numpy()])
        return work

    launches = run(0, 0)["launches"]
    for turn in [(0, 0)] * WARM_UP + [(1, 1), (1, 0), (0, 1)] * (WARM_UP + 1):
        work = run(*turn)
        check(work["launches"] == launches, f"{turn}: {work}, the first run had {launches} launches")
    # Other contents at the same addresses.
    x[0].update_inplace(inputs[1]["x"])
    session.session.run_with_iobinding(bindings[0, 0])
    wanted[1].meets([y[0].numpy()])
    for nth in (1, launches // 2, launches):
        # Packs of a run that failed are dropped: each failure has replays before it.
        for _ in range(WARM_UP):
            run(1, 1)
        try:
            with emulated_gpu.failing("hipModuleLaunchKernel", nth):
                session.session.run_with_iobinding(bindings[1, 1])
        except Exception as problem:
            device.clear(problem)
            text = str(problem)
        else:
            raise Failure(f"launch {nth} fails, and the run does not")
        check("hipModuleLaunchKernel" in text and "_v" in text, f"launch {nth}: {text}")
        # An execution by way of the backend would name the plugin's function.
        check(nth > 1 or "solver" in text, f"the first convolution is not described: {text}")
        check("hipdnnEnginePluginExecuteOpGraph" not in text, f"launch {nth} was no replay's: {text}")


def host_memory(model: bytes) -> None:
    shape = [1, 3, 32, 32]
    session, feeds = device.session(model), networks.images(shape)
    for _ in range(WARM_UP):
        session.run(feeds)
    with emulated_gpu.traced() as trace:
        got = session.run(feeds)
    refused(trace)
    waited = trace.calls(*WAITS)
    # One for each result, and the one at the end.
    check(len(waited) <= len(got) + 1, f"{[line['call'] for line in waited]}")
    check(len(trace.work("copy")) <= len(feeds) + len(got), f"{len(trace.work('copy'))} copies")


def free_extents() -> None:
    model = networks.single(["n", 3, "h", "w"])
    session = device.session(model)
    inputs = [networks.images(shape) for shape in ([1, 3, 8, 8], [2, 3, 5, 9], [1, 3, 4, 4])]
    for feeds in inputs * WARM_UP:
        session.run(feeds)
    with emulated_gpu.traced() as trace:
        for feeds in inputs:
            session.run(feeds)
    refused(trace)


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def no_growth() -> None:
    model = networks.single([1, 3, 4, 4])
    session, feeds = device.session(model), networks.images([1, 3, 4, 4])
    wanted = networks.expected(model, feeds)
    y = device.empty_on_device(wanted.exact[0].shape)
    binding = device.bound(session, device.on_device(feeds["x"]), y)

    def run_bound() -> None:
        session.session.run_with_iobinding(binding)

    def run_on_host() -> None:
        wanted.meets(session.run(feeds))

    # With bound memory one wait, at the end; on host memory one for the result's copy beside.
    for run, waits_of_each in ((run_bound, 1), (run_on_host, 2)):
        for _ in range(100):
            run()
        gc.collect()
        living, size = emulated_gpu.counters().living(), resident()
        made = {name: emulated_gpu.call_count(name) for name in (*FORBIDDEN, *WAITS)}
        for _ in range(RUNS):
            run()
        more = {name: emulated_gpu.call_count(name) - made[name] for name in made}
        check(emulated_gpu.counters().living() == living, f"{living} became {emulated_gpu.counters().living()}")
        grown = [name for name in FORBIDDEN if more[name]]
        check(not grown, f"{RUNS} runs call {', '.join(grown)}")
        waited = sum(more[name] for name in WAITS)
        check(waited <= waits_of_each * RUNS, f"{RUNS} runs wait {waited} times")
        check(resident() - size < GROWTH_BYTES, f"{RUNS} runs take {resident() - size} bytes of the host's memory")
    wanted.meets([y.numpy()])


def come_and_go() -> None:
    model, feeds = networks.interrupted([1, 3, 10, 10]), networks.images([1, 3, 10, 10])
    wanted = networks.expected(model, feeds)

    def once() -> dict[str, int]:
        session = device.session(model)
        wanted.meets(session.run(feeds))
        del session
        gc.collect()
        return emulated_gpu.counters().living()

    once()
    living = once()
    for _ in range(3):
        now = once()
        check(now == living, f"{living} became {now}")
