"""Compiled models: written by one session, opened by another one, in this process or the next, and refused where they don't fit."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import onnx
import onnxruntime as ort

import emulated_gpu
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
    yield "damaged, cut, older and missing payloads are refused with the reason", refused
    if emulated_gpu.missing() is None:
        yield "a payload of another GPU is refused with the reason", lambda: foreign(interpreter)
        yield "a compiled model is opened without a search", nothing_searched
    yield "replaced weights", replaced_weights
    yield "payloads in the application's own storage", own_storage
    yield "the application's storage that fails is an error that says so", failing_storage


def devices() -> list[Any]:
    """A GPU where the provider offers one, else the CPU."""
    offered = provider.devices()
    return [device for device in offered if device.device.type == ort.OrtHardwareDeviceType.GPU][:1] or offered[:1]


def open_model(model: Path | str | bytes, **entries: str) -> provider.Session:
    return provider.Session(model if isinstance(model, bytes) else Path(model), {"cost_rule": "0"}, provider.options(**entries), on=devices())


def compiling(path: Path, embed: bool) -> dict[str, str]:
    """The entries of a session's configuration that have it write a compiled model."""
    return {"ep.context_enable": "1", "ep.context_file_path": str(path), "ep.context_embed_mode": str(int(embed))}


def compiled(model: bytes, folder: Path, embed: bool, name: str = "compiled.onnx") -> tuple[Path, provider.Session]:
    """A compiled model's file, and the session that wrote it."""
    (folder / "model.onnx").write_bytes(model)
    path = folder / name
    session = open_model(folder / "model.onnx", **compiling(path, embed))
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
        ended = opened_elsewhere(interpreter, moved / path.name, folder)
        check(ended.returncode == 0, f"exit status {ended.returncode}: {ended.stderr[-1500:]}")
        with np.load(folder / "got.npz") as got:
            equal([got[key] for key in got.files], wanted)


def opened_elsewhere(interpreter: list[str], model: Path, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs a compiled model in another process: on `feeds.npz` of the folder, to `got.npz`."""
    arguments = [str(Path(__file__).parent), str(model), str(folder / "got.npz"), str(folder / "feeds.npz")]
    return subprocess.run([*interpreter, "-c", OPEN, *arguments], env=os.environ | environment, capture_output=True, text=True, check=False)


def foreign(interpreter: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, _ = compiled(networks.single(SHAPE), folder, True)
        np.savez(folder / "feeds.npz", **networks.images(SHAPE))
        ended = opened_elsewhere(interpreter, path, folder, HIPEMU_ARCH="gfx1101")
        check(ended.returncode == 1 and "expected a model compiled for" in ended.stderr and "gfx1101" in ended.stderr, ended.stderr[-1500:])


def nothing_searched() -> None:
    """A search runs kernels while a session is made."""
    model, feeds = networks.resnet_like(SHAPE), networks.images(SHAPE)
    settings = {"cost_rule": "0", "cache_dir": "off"}

    def kernels(path: Path) -> int:
        # A trace would be a file of this process, which has to write nothing where MIOpen is not to have compiled.
        before = emulated_gpu.counters().kernels_run
        session = provider.Session(path, settings, provider.options(), on=devices())
        run = emulated_gpu.counters().kernels_run - before
        networks.expected(model, feeds).meets(session.run(feeds))
        return run

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = compiled(model, folder, True)[0]
        # Sessions that live at once share plans.
        gc.collect()
        searching = kernels(folder / "model.onnx")
        gc.collect()
        opening = kernels(path)
    check(searching > 0 == opening, f"{searching} kernels run while the model's session is made, {opening} while the compiled one's is")


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
            ("of an older layout", whole[:6] + b"00" + whole[8:], "expected a compiled partition that begins with"),
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


class Storage:
    """Payloads that the application keeps itself, XORed with a key."""

    KEY = 0x5A
    MOST = 1 << 24

    def __init__(self) -> None:
        if not hasattr(ort.SessionOptions, "set_ep_context_data_read_func"):
            raise Skip(f"ONNX Runtime {ort.__version__} has no callbacks for compiled models")
        self.content: dict[str, bytes] = {}
        self.read_names: list[str] = []

    def write(self, name: str, data: Any) -> None:
        self.content[name] = self.crypt(data.read())

    def read(self, name: str, buffer: Any) -> None:
        self.read_names.append(name)
        data = self.crypt(self.content[name])
        buffer.allocate(len(data))
        buffer.write(data, 0)

    def crypt(self, data: bytes) -> bytes:
        return bytes(byte ^ self.KEY for byte in data)

    def compile(self, model: bytes) -> bytes:
        options = provider.options()
        options.add_provider_for_devices(devices(), {"cost_rule": "0"})
        compiler = ort.ModelCompiler(options, model, embed_compiled_data_into_model=False)
        compiler.set_ep_context_data_write_func(self.write)
        return compiler.compile_to_bytes()

    def open(self, compiled: bytes) -> provider.Session:
        options = provider.options()
        options.set_ep_context_data_read_func(self.read, self.MOST)
        return provider.Session(compiled, {"cost_rule": "0"}, options, on=devices())


def own_storage() -> None:
    for model in (networks.single(SHAPE), networks.interrupted(SHAPE)):
        storage, feeds = Storage(), networks.images(SHAPE)
        written = storage.compile(model)
        contexts = [node for node in onnx.load_from_string(written).graph.node if node.op_type == "EPContext"]
        names = {attribute(node, "ep_cache_context").decode() for node in contexts}
        check(bool(contexts) and names == set(storage.content), f"{names} in the model, {set(storage.content)} in the storage")
        check(all(attribute(node, "embed_mode") == 0 for node in contexts), "a payload is in the model")
        session = storage.open(written)
        check(sorted(storage.read_names) == sorted(names), f"{storage.read_names} were read")
        networks.expected(model, feeds).meets(session.run(feeds))
        equal(session.run(feeds), open_model(model).run(feeds))


def failing_storage() -> None:
    storage = Storage()
    written = storage.compile(networks.single(SHAPE))
    ((name, content),) = storage.content.items()

    def refuses(reason: str, what: str) -> None:
        try:
            storage.open(written)
        except Exception as problem:
            check(reason in str(problem), f"{what}: expected {reason!r}, got {problem}")
        else:
            check(False, f"{what}: a session was made")

    storage.content[name] = content[:200] + bytes([content[200] ^ 1]) + content[201:]
    refuses("expected a whole compiled partition", "damaged")
    storage.content[name] = b""
    refuses("expected a compiled partition, got 0 bytes", "empty")
    del storage.content[name]
    refuses(name, "missing")
    storage.content[name] = content
    storage.MOST = 100
    refuses("reading the compiled partition", "larger than the application takes")
    # Without a callback the name is a file's, which is not there.
    says_of_bytes(written, name)
    storage.write = lambda name, data: (_ for _ in ()).throw(OSError("no room"))  # type: ignore[method-assign]
    try:
        storage.compile(networks.single(SHAPE))
    except Exception as problem:
        check("no room" in str(problem) or "writing the compiled partition" in str(problem), f"{problem}")
    else:
        check(False, "a model was compiled whose payload could not be written")


def says_of_bytes(model: bytes, reason: str) -> None:
    try:
        open_model(model)
    except Exception as problem:
        check(reason in str(problem), f"expected {reason!r}, got {problem}")
    else:
        check(False, "a session was made without the payload")
