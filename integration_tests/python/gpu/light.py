"""onnx's nine light models with seeded weights, at any size of the image, on a GPU and on ONNX Runtime's CPU provider.

What is behind the last Softmax is compared, and what is before it: random weights make classes so unlike that the Softmax alone would
hide what came before.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import emulated_gpu
import ort_conformance
import provider
from gpu import device
from runner import Failure, check

FOLDER = Path(onnx.__file__).parent / "backend/test/data/light"
NAMES = tuple(sorted(path.stem.removeprefix("light_") for path in FOLDER.glob("light_*.onnx")))
# The models' own size.
FULL = 224
# Largest difference from the CPU provider, of the range of an output. Both sum in float, in orders of their own: the nine differ by
# 4e-7 at most at full size.
TOLERANCE = 1e-5
# Changes to a model after which something is wrong with it.
MOST_CHANGES = 100


def resized(model: onnx.ModelProto, size: int) -> onnx.ModelProto:
    """A light model for images of another size: windows that are larger than what they look at become as large as that, and
    weights behind the last image get as many columns as there are values."""
    weights = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "ConstantOfShape"}
    inputs = [value for value in model.graph.input if value.name not in {tensor.name for tensor in model.graph.initializer}]
    check(len(inputs) == 1, f"{len(inputs)} inputs")
    for axis in (2, 3):
        inputs[0].type.tensor_type.shape.dim[axis].dim_value = size
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    for _ in range(MOST_CHANGES):
        del model.graph.value_info[:]
        extents = shapes(model)
        if not any(changed(model, node, extents, weights) for node in model.graph.node):
            return model
    raise Failure(f"the model takes no images of {size} × {size}")


def shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    """The extents of tensors, as far as they follow from the input's."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    found = {tensor.name: list(tensor.dims) for tensor in inferred.initializer}
    for value in [*inferred.input, *inferred.value_info, *inferred.output]:
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            found[value.name] = [dim.dim_value for dim in dims]
    return found


def changed(model: onnx.ModelProto, node: onnx.NodeProto, extents: dict[str, list[int]], weights: dict[str, str]) -> bool:
    """Fits one node to what it reads, where that is known; whether that changed it."""
    read = extents.get(node.input[0]) if node.input else None
    if read is None:
        return False
    if node.op_type in ("AveragePool", "MaxPool"):
        window = {attribute.name: list(attribute.ints) for attribute in node.attribute}
        pads = window.get("pads", [0] * 4)
        if all(kernel <= extent + pads[axis] + pads[axis + 2] for axis, (kernel, extent) in enumerate(zip(window["kernel_shape"], read[2:]))):
            return False
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("kernel_shape", read[2:]))
        return True
    if node.op_type == "Reshape":
        wanted = next((numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == node.input[1]), None)
        if wanted is None or (wanted <= 0).any() or int(np.prod(wanted)) == int(np.prod(read)):
            return False
        # A matrix for the classifier, or channels in groups.
        fitting = [int(wanted[0]), int(np.prod(read)) // int(wanted[0])] if wanted.size == 2 else [*map(int, wanted[:-2]), *read[-2:]]
        if int(np.prod(fitting)) != int(np.prod(read)):
            raise Failure(f"{node.name or node.output[0]}: {read} can't be {fitting}, in the place of {wanted.tolist()}")
        node.input[1] = added(model, f"{node.output[0]}_extents", fitting)
        return True
    if node.op_type == "Gemm":
        shape = extents.get(weights.get(node.input[1], "")) and constant(model, weights[node.input[1]])
        axis = 1 if any(attribute.name == "transB" and attribute.i for attribute in node.attribute) else 0
        columns = int(np.prod(read[1:]))
        if not shape or shape[axis] == columns:
            return False
        shape[axis] = columns
        fill = next(fill for fill in model.graph.node if node.input[1] in fill.output)
        fill.input[0] = weights[node.input[1]] = added(model, f"{node.input[1]}_extents", shape)
        return True
    return False


def constant(model: onnx.ModelProto, name: str) -> list[int]:
    return next(numpy_helper.to_array(tensor).tolist() for tensor in model.graph.initializer if tensor.name == name)


def added(model: onnx.ModelProto, name: str, extents: list[int]) -> str:
    """The name of a new constant."""
    model.graph.initializer.append(numpy_helper.from_array(np.array(extents, np.int64), name))
    # Old models have their constants among the inputs.
    model.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [len(extents)]))
    return name


def model(name: str, size: int) -> bytes:
    """A light model with seeded weights, whose outputs are the classes and what the Softmax gets."""
    loaded = onnx.load(str(FOLDER / f"light_{name}.onnx"))
    if size != FULL:
        loaded = resized(loaded, size)
    loaded = ort_conformance.with_random_weights(loaded)
    loaded.graph.output.extend(onnx.ValueInfoProto(name=node.input[0]) for node in list(loaded.graph.node) if node.op_type == "Softmax")
    return onnx.shape_inference.infer_shapes(loaded).SerializeToString()


def same(name: str, size: str) -> None:
    """Runs a light model wholly on the GPU, with the results of the CPU provider."""
    content = model(name, int(size))
    cpu = provider.cpu_session(content)
    feeds = ort_conformance.random_feeds(cpu)
    session = device.session(content)
    device.claimed(session)
    launches = emulated_gpu.counters().launches
    got, wanted = session.run(feeds), cpu.run(None, feeds)
    check(emulated_gpu.counters().launches > launches, "nothing was launched")
    for value, ours, theirs in zip(cpu.get_outputs(), got, wanted):
        check(float(np.ptp(theirs)) > 0, f"{value.name}: the CPU provider's values are all the same")
        difference = provider.relative_difference([ours], [theirs])
        check(difference < TOLERANCE, f"{value.name}: off by {difference:.3g} of the range")
