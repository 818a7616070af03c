#!/usr/bin/env python3
"""The provider behind another one that calls it in an order of its own, as AMD's umbrella provider does: `c/umbrella.c`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnxruntime_ep_hipdnn_rs as wheel
from runner import Runner, Skip, check, run_suite

ROOT = Path(__file__).resolve().parents[2]

# Runs in a process of its own: what is tested for is a crash.
PROGRAM = """
import ctypes, json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np, onnxruntime as ort, provider, suite_umbrella
library, settings = sys.argv[2], json.loads(sys.argv[3])
ort.register_execution_provider_library('umbrella', library)
log = ctypes.CDLL(library).umbrella_log
log.restype = ctypes.c_char_p
options = provider.options()
if provider.HAS_ASSIGNMENT:
    options.add_session_config_entry('session.record_ep_graph_assignment_info', '1')
for key, value in settings.items():
    options.add_session_config_entry('ep.hipdnnrsexecutionprovider.' + key, value)
options.add_provider_for_devices([d for d in ort.get_ep_devices() if d.ep_name == 'umbrella'], {})
model, outcome = suite_umbrella.model(), {'shares': []}
try:
    session = ort.InferenceSession(model, options, enable_fallback=0)
    if provider.HAS_ASSIGNMENT:
        outcome['shares'] = sorted((share.ep_name, [node.op_type for node in share.get_nodes()]) for share in session.get_provider_graph_assignment_info())
    feeds = {'x': np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    outcome['difference'] = provider.relative_difference(session.run(None, feeds), provider.cpu_session(model).run(None, feeds))
    del session
except Exception as problem:
    outcome['error'] = str(problem)
outcome['log'] = log().decode().splitlines()
print(json.dumps(outcome))
"""


def main() -> int:
    return run_suite(body, "umbrella", __doc__ or "")


def body(runner: Runner) -> None:
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        runner.case("nodes are claimed and run on the host's memory", lambda: host_memory(scratch))
        runner.case("declared device memory ends in NOT_IMPLEMENTED", lambda: device_memory(scratch))
        runner.case("functions of compiled nodes refuse null, foreign and released ones", lambda: probed(scratch))
        runner.case("plans go with their compiled nodes, though nobody says that the session is complete", lambda: living_plans(scratch))


def model() -> bytes:
    import numpy as np
    from onnx import TensorProto, helper

    rng = np.random.default_rng(2)
    initializers = [helper.make_tensor(name, TensorProto.FLOAT, shape, rng.standard_normal(shape).astype(np.float32).tobytes(), raw=True)
                    for name, shape in (("w", (4, 3, 3, 3)), ("b", (4,)))]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("Asinh", ["r"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def compiled(source: str, target: Path, *libraries: str) -> Path:
    """A C source as a shared library, or as a program if its name has no suffix."""
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        raise Skip(f"there is no C compiler {compiler}")
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        kind = ["-fPIC", "-shared", "-fvisibility=default"] if target.suffix else []
        outcome = subprocess.run([compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", *kind, '-DAPI_VERSION="1.3.0"',
                                  "-I", str(ROOT / "install/include"), "-o", str(target), str(ROOT / "integration_tests/c" / source), "-ldl", *libraries],
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True)
        check(outcome.returncode == 0, f"{source} does not compile: {outcome.stderr}")
    return target


def inner() -> str:
    """The provider: the installed component for AMD's umbrella where there is one, else the wheel's."""
    return os.environ.get("INSTALLED_UMBRELLA") or wheel.get_library_path()


def behind(scratch: Path, settings: dict[str, str] | None = None, **environment: str) -> dict[str, Any]:
    library = compiled("umbrella.c", scratch / "libumbrella.so")
    environment |= {"UMBRELLA_BACKEND": inner()}
    outcome = subprocess.run([sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(library), json.dumps(settings or {})],
                             env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    check(outcome.returncode == 0, f"exit status {outcome.returncode}: {outcome.stdout[-500:]}{outcome.stderr[-1000:]}")
    return json.loads(outcome.stdout.splitlines()[-1])


def runs(outcome: dict[str, Any]) -> None:
    check("error" not in outcome and outcome["difference"] < 1e-5, f"{outcome}")
    check(not outcome["shares"] or any(name == "umbrella" and "Conv" in nodes for name, nodes in outcome["shares"]), f"{outcome['shares']}")


def host_memory(scratch: Path) -> None:
    outcome = behind(scratch)
    runs(outcome)
    check("data transfer: null" in outcome["log"], f"{outcome['log']}")


def device_memory(scratch: Path) -> None:
    outcome = behind(scratch, UMBRELLA_MEMORY="device")
    check("allocator default asked for" in outcome["log"], f"{outcome['log']}")
    check("NOT_IMPLEMENTED" in outcome.get("error", "") and "has allocators for GPUs only" in outcome["error"], f"{outcome}")


def probed(scratch: Path) -> None:
    outcome = behind(scratch, UMBRELLA_PROBE="1")
    runs(outcome)
    probes = [line for line in outcome["log"] if line.startswith("probe: ")]
    check(len(probes) == 21 and all(line.endswith(": error 2") for line in probes), f"{probes}")


def living_plans(scratch: Path) -> None:
    plugin = compiled("test_plugin.c", scratch / "plugins" / "libtest_c_plugin.so")
    settings = {"plugin_dir": str(plugin.parent), "engine": "TEST_C_ENGINE"}
    outcome = behind(scratch, settings, UMBRELLA_PLUGIN=str(plugin))
    runs(outcome)
    check("0 plans live after 1 compiled nodes were released" in outcome["log"], f"{outcome['log']}")


if __name__ == "__main__":
    sys.exit(main())
