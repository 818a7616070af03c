"""Compiled models: written by one session, opened by another one, in this process or the next, and refused where they don't fit."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import onnx
import onnxruntime as ort

import provider
from gpu import networks
from runner import Skip, check

SHAPE = [1, 3, 32, 32]
# What a process runs that opens a compiled model and writes its results.
OPEN = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import compiled_models
session = compiled_models.open_model(sys.argv[2])
np.savez(sys.argv[3], *session.run(dict(np.load(sys.argv[4]))))
"""


def cases(interpreter: list[str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """`interpreter` starts a Python that has what this one has."""
    for name, make in (("Conv", networks.single), ("a ResNet-like network", networks.resnet_like), ("two programs", networks.interrupted)):
        yield f"{name}: payloads in the model", lambda make=make: round_trip(make(SHAPE), True, interpreter)
        yield f"{name}: payloads beside the model", lambda make=make: round_trip(make(SHAPE), False, interpreter)
    yield "free extents", free_extents
    yield "ONNX Runtime's compiler", compiler
    yield "damaged, cut, foreign and missing payloads are refused with the reason", refused
    yield "replaced weights", replaced_weights


def devices() -> list[Any]:
    """A GPU where the provider offers one, else the CPU."""
    offered = provider.devices()
    return [device for device in offered if device.device.type == ort.OrtHardwareDeviceType.GPU][:1] or offered[:1]


def open_model(model: Path | str | bytes, **entries: str) -> provider.Session:
    return provider.Session(model if isinstance(model, bytes) else Path(model), {"cost_rule": "0"}, provider.options(**entries), on=devices())


def compiled(model: bytes, folder: Path, embed: bool, name: str = "compiled.onnx") -> tuple[Path, provider.Session]:
    """A compiled model's file, and the session that wrote it."""
    (folder / "model.onnx").write_bytes(model)
    path = folder / name
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(path), "ep.context_embed_mode": str(int(embed))}
    session = open_model(folder / "model.onnx", **entries)
    check(path.is_file(), "no compiled model was written")
    return path, session


def nodes(path: Path) -> list[onnx.NodeProto]:
    return [node for node in onnx.load(str(path)).graph.node if node.op_type == "EPContext"]


def attribute(node: onnx.NodeProto, name: str) -> Any:
    return next(onnx.helper.get_attribute_value(entry) for entry in node.attribute if entry.name == name)


def equal(got: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def round_trip(model: bytes, embed: bool, interpreter: list[str]) -> None:
    feeds = networks.images(SHAPE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, session = compiled(model, folder, embed)
        wanted = session.run(feeds)
        networks.expected(model, feeds).meets(wanted)
        written = nodes(path)
        check(len(written) == len({claim.group for claim in session.claims if claim.engine}), f"{len(written)} EPContext nodes")
        for node in written:
            check(attribute(node, "source") == provider.NAME.encode() and attribute(node, "embed_mode") == int(embed), f"{node.name}")
        beside = list(folder.glob("*.bin"))
        check(len(beside) == (0 if embed else len(written)), f"{[file.name for file in beside]} beside the model")
        again = open_model(path)
        taken = [claim.op for claim in again.claims if claim.reason is None]
        check(taken.count("EPContext") == len(written), f"the provider takes {taken}")
        equal(again.run(feeds), wanted)
        # In a folder of another name, and in another process.
        moved = folder / "elsewhere"
        moved.mkdir()
        for file in [path, *beside]:
            file.rename(moved / file.name)
        np.savez(folder / "feeds.npz", **feeds)
        arguments = [str(Path(__file__).parent), str(moved / path.name), str(folder / "got.npz"), str(folder / "feeds.npz")]
        ended = subprocess.run([*interpreter, "-c", OPEN, *arguments], capture_output=True, text=True, check=False)
        check(ended.returncode == 0, f"exit status {ended.returncode}: {ended.stderr[-1500:]}")
        with np.load(folder / "got.npz") as got:
            equal([got[key] for key in got.files], wanted)


def free_extents() -> None:
    model = networks.single(["n", 3, "h", "w"])
    with tempfile.TemporaryDirectory() as name:
        path, session = compiled(model, Path(name), True)
        again = open_model(path)
        for shape in ([1, 3, 8, 8], [2, 3, 5, 9]):
            feeds = networks.images(shape)
            equal(again.run(feeds), session.run(feeds))


def compiler() -> None:
    if not hasattr(ort, "ModelCompiler"):
        raise Skip(f"ONNX Runtime {ort.__version__} has no ModelCompiler")
    model, feeds = networks.resnet_like(SHAPE), networks.images(SHAPE)
    options = provider.options()
    options.add_provider_for_devices(devices(), {"cost_rule": "0"})
    written = ort.ModelCompiler(options, model, embed_compiled_data_into_model=True).compile_to_bytes()
    networks.expected(model, feeds).meets(open_model(written).run(feeds))
    model_metadata = {entry.key: entry.value for entry in onnx.load_from_string(written).metadata_props}
    told = [value for key, value in model_metadata.items() if key.endswith(provider.NAME)]
    check(not told or told[0].startswith(provider.NAME), f"{model_metadata}")


def refused() -> None:
    model = networks.single(SHAPE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, _ = compiled(model, folder, False)
        (payload,) = folder.glob("*.bin")
        whole = payload.read_bytes()
        for what, content, reason in [
            ("damaged", whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], "expected a whole compiled partition"),
            ("cut", whole[:-40], "expected a compiled partition of"),
            ("another file", b"PK\x03\x04 something else", "expected a compiled partition that begins with"),
            ("empty", b"", "expected a compiled partition, got 0 bytes"),
            ("missing", None, payload.name),
        ]:
            if content is None:
                payload.unlink()
            else:
                payload.write_bytes(content)
            says(path, reason, what)
        payload.write_bytes(whole)
        networks.expected(model, networks.images(SHAPE)).meets(open_model(path).run(networks.images(SHAPE)))
        graph = onnx.load(str(path))
        for node in graph.graph.node:
            for entry in node.attribute:
                if entry.name == "ep_cache_context":
                    entry.s = b"../" + payload.name.encode()
        onnx.save(graph, str(folder / "outside.onnx"))
        says(folder / "outside.onnx", "expected a file beside the model", "a file outside")


def says(path: Path, reason: str, what: str) -> None:
    try:
        open_model(path)
    except Exception as problem:
        check(reason in str(problem), f"{what}: expected {reason!r}, got {problem}")
    else:
        check(False, f"{what}: a session was made")


def replaced_weights() -> None:
    """A compiled model whose weights are others is right with those."""
    model, feeds = networks.single(SHAPE), networks.images(SHAPE)
    with tempfile.TemporaryDirectory() as name:
        path, _ = compiled(model, Path(name), True)
        changed, source = onnx.load(str(path)), onnx.load_from_string(model)
        for graph in (changed.graph, source.graph):
            for tensor in graph.initializer:
                values = onnx.numpy_helper.to_array(tensor)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(2), tensor.name))
        again = open_model(changed.SerializeToString())
        networks.expected(source.SerializeToString(), feeds).meets(again.run(feeds))
