#!/usr/bin/env python3
"""Options, the claim report, and what happens when something is missing or wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import onnxruntime_ep_hipdnn_rs as wheel
import provider
from runner import Runner, Skip, check, run_suite


def main() -> int:
    return run_suite(body, "options", __doc__ or "")


def body(runner: Runner) -> None:
    runner.case("the wheel names its library and its provider", names)
    runner.case("the device tells the provider's version", device)
    runner.case("an unknown option is an error that lists the known ones", unknown_option)
    runner.case("a bad value is an error that names the option", bad_value)
    runner.case("ONNX Runtime's Python package falls back in silence unless told not to, as the README says", fallback)
    runner.case("the report has a line for each node", report)
    runner.case("ONNX Runtime's own profile agrees with the report", profile)
    runner.case("a report that can't be written is an error", unwritable_report)
    runner.case("the graphs of claimed nodes are written, those of dynamic shapes as they turn up", dumped_graphs)
    runner.case("the program reads, explains, runs and times them", dumped_graphs_are_of_use)
    runner.case("a directory for graphs that can't be made is an error", no_directory_for_graphs)
    for what in OBSTACLES:
        runner.case(f"a directory for graphs that {what} after the session was made fails no run", lambda: lost_directory(what))
    runner.case("a report on a full disk fails no session", full_disk)
    runner.case("a missing backend library is an error that says where it was looked for", missing_backend)
    runner.case("a backend without an engine leaves everything to the CPU provider", no_engine)
    runner.case("the CPU engine switched off leaves everything to the CPU provider", engine_off)
    runner.case("engines that hipDNN's variable leaves out get nothing", engine_left_out)
    runner.case("a session without the provider's claims still runs", nothing_to_claim)
    runner.case("fallback forbidden, and not needed", no_fallback)
    runner.case("the libraries in their installed places work as in the wheel", installed_places)
    runner.case("strict precision does without Winograd's algorithm, unless that is asked for", strict)
    runner.case("tuning and a cache's directory change nothing on the CPU", without_effect)
    runner.case("runs work on the session's threads, and no others are started", session_threads)
    runner.case("sessions of different threads give the same bits, also at once", sessions_at_once)
    runner.case("unregistering after the sessions are gone", unregister)
    runner.case("a process that just exits, exits cleanly", clean_exit)


def conv_model(relu: bool = True, dynamic: bool = False) -> bytes:
    w = np.random.default_rng(3).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="the_conv", pads=[1, 1, 1, 1]),
             helper.make_node("Asinh", ["c"], ["s"], name="the_asinh")]
    if relu:
        nodes.append(helper.make_node("Relu", ["s"], ["y"], name="the_relu"))
    shape = ["n", 3, "h", "w"] if dynamic else [1, 3, 8, 8]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y" if relu else "s", TensorProto.FLOAT, [None] * 4)],
                              [helper.make_tensor("w", TensorProto.FLOAT, w.shape, w.tobytes(), raw=True)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


FEEDS = {"x": np.random.default_rng(4).standard_normal((1, 3, 8, 8)).astype(np.float32)}


def same_as_cpu(session: provider.Session) -> None:
    difference = provider.relative_difference(session.run(FEEDS), provider.cpu_session(conv_model()).run(None, FEEDS))
    check(difference < 1e-5, f"off by {difference:.3g} of the range")


def refusal(options: dict[str, str]) -> str:
    """The message with which a session with these options is refused."""
    try:
        provider.Session(conv_model(), options, report=False)
    except Exception as problem:
        return str(problem)
    raise provider.Failure(f"a session with {options} was made")


def child(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, in which nothing is loaded yet, with this module at hand."""
    prelude = "import sys; sys.path.insert(0, sys.argv[1])\nimport numpy as np, onnxruntime as ort, provider, suite_options\n"
    return subprocess.run([sys.executable, "-c", prelude + code, str(Path(__file__).parent), *arguments], env=os.environ | environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def succeeds(outcome: subprocess.CompletedProcess[str]) -> str:
    check(outcome.returncode == 0, f"exit status {outcome.returncode}: {outcome.stdout[-500:]}{outcome.stderr[-1500:]}")
    return outcome.stdout


def names() -> None:
    check(Path(wheel.get_library_path()).is_file(), f"there is no {wheel.get_library_path()}")
    check(wheel.get_ep_names() == [wheel.get_ep_name()] == ["HipDnnRsExecutionProvider"], f"{wheel.get_ep_names()}")
    beside = sorted(path.name for path in Path(wheel.get_library_path()).parent.glob("*.so"))
    wanted = ["libhipdnn_backend.so", "libhipdnn_rs_plugin.so", "libonnxruntime_providers_hipdnn_rs.so"]
    check(beside == wanted, f"the wheel holds {beside}, wanted {wanted}")


def device() -> None:
    found = provider.devices()
    check(len(found) == 1, f"{len(found)} devices on a machine with one CPU and no usable GPU")
    one = found[0]
    check(one.ep_name == provider.NAME and bool(one.ep_vendor), f"{one.ep_name} by {one.ep_vendor!r}")
    check(one.device.type == ort.OrtHardwareDeviceType.CPU, f"the device is a {one.device.type}")
    version = one.ep_metadata.get("version", "")
    check(version.count(".") == 2, f"the version is {version!r}")


def unknown_option() -> None:
    message = refusal({"no_such_option": "1"})
    check("no_such_option" in message and "report" in message, f"the message is: {message}")


def bad_value() -> None:
    message = refusal({"threads": "many"})
    check("threads" in message and "many" in message, f"the message is: {message}")


def fallback() -> None:
    def session(**arguments: int) -> ort.InferenceSession:
        options = provider.options()
        options.log_severity_level = 4
        options.add_provider_for_devices(provider.devices(), {"no_such_option": "1"})
        return ort.InferenceSession(conv_model(), options, **arguments)

    with contextlib.redirect_stdout(io.StringIO()) as output:
        fallen = session()
    check(fallen.get_providers() == [provider.CPU], f"the session has {fallen.get_providers()}")
    check("Falling back" in output.getvalue(), f"the line is: {output.getvalue()}")
    try:
        session(enable_fallback=0)
    except Exception as problem:
        check("no_such_option" in str(problem), f"the message is: {problem}")
    else:
        raise provider.Failure("no error with enable_fallback=0")
    readme = Path(__file__).resolve().parents[2] / "README.md"
    check("enable_fallback=0" in readme.read_text(encoding="utf-8"), "README.md does not say how to get the error")


def report() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "report.jsonl"
        session = provider.Session(conv_model(), {"report": str(path)})
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        check(bool(lines), "the report is empty")
        claims = {claim.node: claim for claim in session.claims}
        conv, asinh = claims.get("the_conv"), claims.get("the_asinh")
        check(conv is not None and conv.engine == "HIPDNN_RS_CPU_ENGINE", f"the convolution's line: {conv}; {lines}")
        check(asinh is not None and asinh.engine is None and bool(asinh.reason), f"the line of Asinh: {asinh}; {lines}")


def profile() -> None:
    with tempfile.TemporaryDirectory() as directory:
        options = provider.options()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(directory) / "profile")
        session = provider.Session(conv_model(), session_options=options)
        session.run(FEEDS)
        events = json.loads(Path(session.session.end_profiling()).read_text(encoding="utf-8"))
    ran = {(event["args"].get("provider"), event["args"].get("op_name")) for event in events if event.get("cat") == "Node" and "provider" in event.get("args", {})}
    check((provider.CPU, "Asinh") in ran, f"expected Asinh on the CPU provider, got {ran}")
    check(any(name == provider.NAME for name, _ in ran), f"nothing ran on {provider.NAME}: {ran}")
    check((provider.CPU, "Conv") not in ran and (provider.CPU, "FusedConv") not in ran, f"the convolution ran on the CPU provider: {ran}")


def unwritable_report() -> None:
    message = refusal({"report": "/nonexistent/directory/report.jsonl"})
    check("/nonexistent/directory/report.jsonl" in message, f"the message is: {message}")


def dumped_graphs() -> None:
    with tempfile.TemporaryDirectory() as directory:
        graphs = Path(directory) / "not yet there"
        session = provider.Session(conv_model(), {"dump_graphs": str(graphs)})
        session.run(FEEDS)
        check(names_in(graphs) == ["the_conv.hipdnn.bin"], f"a static shape left {names_in(graphs)}")
        content = (graphs / "the_conv.hipdnn.bin").read_bytes()
        check(b"the_conv" in content and len(content) > 200, f"the graph is {content!r}")
        dynamic = provider.Session(conv_model(dynamic=True), {"dump_graphs": str(graphs)})
        (graphs / "the_conv.hipdnn.bin").unlink()
        dynamic.run(FEEDS)
        dynamic.run({"x": np.zeros((2, 3, 5, 6), np.float32)})
        dynamic.run(FEEDS)
        wanted = ["the_conv.1x3x8x8.hipdnn.bin", "the_conv.2x3x5x6.hipdnn.bin"]
        check(names_in(graphs) == wanted, f"dynamic shapes left {names_in(graphs)}, wanted {wanted}")


def dumped_graphs_are_of_use() -> None:
    prefix = os.environ.get("DIST_PREFIX")
    if not prefix:
        raise Skip("DIST_PREFIX names no directory with the installed layout")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HIPDNN_")}
    with tempfile.TemporaryDirectory() as directory:
        provider.Session(conv_model(), {"dump_graphs": directory})
        graph = str(Path(directory) / "the_conv.hipdnn.bin")
        for arguments, wanted in [
            (["inspect", graph], ["ConvolutionFwd", "[1,3,8,8]", "pre_padding [1,1]"]),
            (["explain", graph], ["HIPDNN_RS_CPU_ENGINE", "takes it", "plan: "]),
            (["run", graph, "--against", "reference"], ["all within their bounds"]),
            (["bench", graph, "--seconds", "0.1"], ["| HIPDNN_RS_CPU_ENGINE |"]),
        ]:
            outcome = subprocess.run([f"{prefix}/bin/hipdnn-rs", *arguments], env=environment, stdin=subprocess.DEVNULL,
                                     capture_output=True, text=True, timeout=300)
            output = succeeds(outcome)
            for part in wanted:
                check(part in output, f"{arguments[0]} does not say {part!r}: {output}")


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def no_directory_for_graphs() -> None:
    message = refusal({"dump_graphs": "/dev/null/graphs"})
    check("/dev/null/graphs" in message, f"the message is: {message}")


OBSTACLES = {"vanishes": "shutil.rmtree(graphs)", "becomes a file": "shutil.rmtree(graphs); open(graphs, 'w').close()"}


def lost_directory(what: str) -> None:
    """Runs with new shapes go on, and the log says what is missing."""
    with tempfile.TemporaryDirectory() as directory:
        graphs = str(Path(directory) / "graphs")
        outcome = child("import shutil\n"
                        "model, graphs = suite_options.conv_model(dynamic=True), sys.argv[2]\n"
                        "options = provider.options()\n"
                        "options.log_severity_level = 2\n"
                        "session = provider.Session(model, {'dump_graphs': graphs}, session_options=options)\n"
                        f"{OBSTACLES[what]}\n"
                        "cpu = provider.cpu_session(model)\n"
                        "for extent in (8, 5, 8):\n"
                        "    feeds = {'x': np.ones((1, 3, extent, 6), np.float32)}\n"
                        "    assert provider.relative_difference(session.run(feeds), cpu.run(None, feeds)) < 1e-5\n", graphs)
        succeeds(outcome)
        for shape in ("1x3x8x6", "1x3x5x6"):
            line = f"the graph {graphs}/the_conv.{shape}.hipdnn.bin is not written: "
            check(line in outcome.stderr, f"wanted in the log: {line!r}, got: {outcome.stderr}")


def full_disk() -> None:
    if not Path("/dev/full").exists():
        raise Skip("there is no /dev/full")
    outcome = child("options = provider.options()\n"
                    "options.log_severity_level = 2\n"
                    "options.add_provider_for_devices(provider.devices(), {'report': '/dev/full'})\n"
                    "ort.InferenceSession(suite_options.conv_model(), options, enable_fallback=0).run(None, suite_options.FEEDS)\n")
    succeeds(outcome)
    check("the report /dev/full is not written: " in outcome.stderr, f"the log does not say so: {outcome.stderr}")


def missing_backend() -> None:
    message = refusal({"backend": "/nonexistent/libhipdnn_backend.so"})
    check("/nonexistent/libhipdnn_backend.so" in message, f"the message is: {message}")


def no_engine() -> None:
    with tempfile.TemporaryDirectory() as empty:
        succeeds(child("session = provider.Session(suite_options.conv_model())\n"
                       "assert provider.NAME not in session.nodes(), session.nodes()\n"
                       "suite_options.same_as_cpu(session)\n", HIPDNN_PLUGIN_DIR=empty))


def engine_off() -> None:
    succeeds(child("session = provider.Session(suite_options.conv_model())\n"
                   "assert provider.NAME not in session.nodes(), session.nodes()\n"
                   "suite_options.same_as_cpu(session)\n", HIPDNN_RS_CPU_ENGINE="off"))


def engine_left_out() -> None:
    """A provider with one possible engine asks the backend's heuristics, too, where a variable of theirs is set."""
    succeeds(child("session = provider.Session(suite_options.conv_model())\n"
                   "assert provider.NAME not in session.nodes(), session.nodes()\n"
                   "suite_options.same_as_cpu(session)\n", HIPDNN_HEUR_FALLBACK_ENGINE_ORDER="SOME_OTHER_ENGINE"))


def nothing_to_claim() -> None:
    node = helper.make_node("Sin", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = provider.Session(model)
    x = np.array([0, 1, 2], np.float32)
    np.testing.assert_allclose(session.run({"x": x})[0], np.sin(x), rtol=1e-6)


def no_fallback() -> None:
    w = np.ones((2, 3, 1, 1), np.float32)
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
                              [helper.make_tensor("w", TensorProto.FLOAT, w.shape, w.tobytes(), raw=True)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    options = provider.options()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = provider.Session(model, session_options=options)
    x = np.random.default_rng(5).standard_normal((1, 3, 4, 4)).astype(np.float32)
    np.testing.assert_allclose(session.run({"x": x})[0], x.sum(axis=1, keepdims=True).repeat(2, axis=1), rtol=1e-5, atol=1e-5)


def installed_places() -> None:
    prefix = os.environ.get("DIST_PREFIX")
    if not prefix:
        raise Skip("DIST_PREFIX names no directory with the installed layout")
    succeeds(child("suite_options.wheel.get_library_path = lambda: sys.argv[2]\n"
                   "session = provider.Session(suite_options.conv_model())\n"
                   "assert session.nodes()[provider.NAME]['Conv'] == 1, session.nodes()\n"
                   "suite_options.same_as_cpu(session)\n", f"{prefix}/lib/libonnxruntime_providers_hipdnn_rs.so"))


def large() -> tuple[bytes, dict[str, np.ndarray]]:
    """A 3×3 convolution for which Winograd's algorithm pays."""
    rng = np.random.default_rng(8)
    w = (rng.standard_normal((32, 32, 3, 3)) / 17).astype(np.float32)
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 48, 48])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
                              [helper.make_tensor("w", TensorProto.FLOAT, w.shape, w.tobytes(), raw=True)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return model, {"x": rng.standard_normal((1, 32, 48, 48)).astype(np.float32)}


def strict() -> None:
    model, feeds = large()

    def result(**options: str) -> np.ndarray:
        return provider.Session(model, options).run(feeds)[0]

    plain, strictly = result(), result(precision="strict")
    check(np.array_equal(strictly, result(winograd="0")), "strict precision is another algorithm than winograd=0")
    check(not np.array_equal(strictly, plain), "Winograd's algorithm was not used without the option")
    check(np.array_equal(plain, result(precision="strict", winograd="1")), "winograd=1 does not count more than precision")
    check(np.array_equal(plain, result(precision="default")), "the default is not the default")


def without_effect() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for tuning in ("immediate", "benchmark", "tune"):
            same_as_cpu(provider.Session(conv_model(), {"tuning": tuning, "cache_dir": folder}))
        check(not any(Path(folder).iterdir()), "the CPU engine keeps something")


def session_threads() -> None:
    code = """
from pathlib import Path
before = len(list(Path("/proc/self/task").iterdir()))
chosen = ort.SessionOptions()
chosen.intra_op_num_threads = int(sys.argv[2])
session = provider.Session(suite_options.conv_model(), {"threads": "4"}, chosen)
for _ in range(3):
    suite_options.same_as_cpu(session)
names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
print(sum(name.startswith("hipdnn-rs") for name in names))
"""
    for threads in ("1", "3"):
        own = succeeds(child(code, threads)).split()[-1]
        check(own == "0", f"{own} threads of the engine in a session of {threads}")


def sessions_at_once() -> None:
    model = conv_model()
    sessions = [provider.Session(model, {"threads": "4"}, provider.options(threads)) for threads in (1, 2, 3, 5)]
    wanted = sessions[0].run(FEEDS)[0]
    with ThreadPoolExecutor(2 * len(sessions)) as pool:
        results = pool.map(lambda index: sessions[index % len(sessions)].run(FEEDS)[0], range(200))
        different = sum(not np.array_equal(result, wanted) for result in results)
    check(different == 0, f"{different} of 200 runs differ")


def unregister() -> None:
    succeeds(child("import gc\n"
                   "for turn in range(3):\n"
                   "    ort.register_execution_provider_library(f'again{turn}', suite_options.wheel.get_library_path())\n"
                   "    devices = [d for d in ort.get_ep_devices() if d.ep_name == provider.NAME]\n"
                   "    options = provider.options()\n"
                   "    options.add_provider_for_devices(devices, {})\n"
                   "    session = ort.InferenceSession(suite_options.conv_model(), options)\n"
                   "    session.run(None, suite_options.FEEDS)\n"
                   "    del session, options, devices\n"
                   "    gc.collect()\n"
                   "    ort.unregister_execution_provider_library(f'again{turn}')\n"
                   "print('done')\n"))


def clean_exit() -> None:
    output = succeeds(child("session = provider.Session(suite_options.conv_model())\n"
                            "session.run(suite_options.FEEDS)\nprint('ran')\n"))
    check("ran" in output, output)


if __name__ == "__main__":
    sys.exit(main())
