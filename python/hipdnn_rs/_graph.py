"""Graphs as they are described: tensors, and one method an operation.

The description is hipDNN's JSON form all along; the methods know the operations' shapes, and the native half checks the whole.
"""

from __future__ import annotations

import json
import math
from typing import Any, Iterable, Mapping, Sequence, Union

from . import _native
from ._plan import Plan, default_backend, explain

# A tensor of the graph, or a number that becomes a constant of it.
Operand = Union["Tensor", int, float, bool]
# One dimension, several, or all.
Axes = Union[int, Sequence[int], None]
# One number for all spatial dimensions, or one for each.
Spatial = Union[int, Sequence[int]]
# The same, or a pair for each: before and after the image.
Padding = Union[int, Sequence[Union[int, tuple[int, int]]]]

# The fields of a constant, by its type.
_VALUES = {"float": "Float32Value", "half": "Float16Value", "bfloat16": "BFloat16Value", "double": "Float64Value",
           "int32": "Int32Value", "int64": "Int64Value", "boolean": "BoolValue"}
_BITS = {"double": 64, "int64": 64, "float": 32, "int32": 32, "half": 16, "bfloat16": 16}


class Tensor:
    """A tensor of a graph. `+`, `-`, `*`, `/`, `@`, `abs` and comparisons by `<`, `<=`, `>`, `>=` make nodes of the graph."""

    def __init__(self, graph: Graph, description: dict[str, Any]) -> None:
        self.graph = graph
        self._description = description

    @property
    def uid(self) -> int:
        """Its number in the graph."""
        return int(self._description["uid"])

    @property
    def name(self) -> str:
        """Its name in calls of plans and in messages."""
        return str(self._description["name"])

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents in logical order: batch, channels, spatial."""
        return tuple(self._description["dims"])

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances of neighbors along each dimension, in elements."""
        return tuple(self._description["strides"])

    @property
    def dtype(self) -> str:
        """The type of its elements, by hipDNN's name."""
        return str(self._description["data_type"])

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, shape={self.shape}, dtype={self.dtype!r})"

    def __add__(self, other: Operand) -> Tensor:
        return self.graph.add(self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return self.graph.add(other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return self.graph.subtract(self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return self.graph.subtract(other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return self.graph.multiply(self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return self.graph.multiply(other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return self.graph.divide(self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return self.graph.divide(other, self)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.graph.matmul(self, other)

    def __neg__(self) -> Tensor:
        return self.graph.negative(self)

    def __abs__(self) -> Tensor:
        return self.graph.abs(self)

    def __lt__(self, other: Operand) -> Tensor:
        return self.graph.less(self, other)

    def __le__(self, other: Operand) -> Tensor:
        return self.graph.less_equal(self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return self.graph.greater(self, other)

    def __ge__(self, other: Operand) -> Tensor:
        return self.graph.greater_equal(self, other)


class Graph:
    """A graph under construction.

    `dtype` is the type of inputs that name none, `compute_dtype` that of the nodes' arithmetic. Results have the type of their
    first operand unless `dtype=` says another one; they are the graph's own, without memory, until `output` names them.
    """

    def __init__(self, name: str = "", *, dtype: str = "float", compute_dtype: str = "float") -> None:
        self._tensors: list[dict[str, Any]] = []
        self._nodes: list[dict[str, Any]] = []
        self._description: dict[str, Any] = {
            "name": name, "compute_data_type": compute_dtype, "intermediate_data_type": compute_dtype, "io_data_type": dtype,
        }
        self._next = 1

    @classmethod
    def from_json(cls, text: str) -> Graph:
        """A graph from hipDNN's JSON form; nodes can be added to it."""
        graph = cls()
        description = json.loads(_native.Graph.from_json(text).to_json())
        graph._tensors, graph._nodes = description.pop("tensors"), description.pop("nodes")
        graph._description = description
        graph._next = 1 + max([0, *(tensor["uid"] for tensor in graph._tensors)])
        for tensor in graph._tensors:
            # A call of a plan goes by names.
            tensor["name"] = tensor["name"] or f"t{tensor['uid']}"
        return graph

    @classmethod
    def from_bytes(cls, bytes: bytes) -> Graph:
        """A graph from hipDNN's serialized form."""
        return cls.from_json(_native.Graph.from_bytes(bytes).to_json())

    def to_json(self) -> str:
        """The graph, checked, in hipDNN's JSON form."""
        return self._checked().to_json()

    def to_bytes(self) -> bytes:
        """The graph, checked, as hipDNN serializes it."""
        return self._checked().to_bytes()

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {tensor["name"]: Tensor(self, tensor) for tensor in self._tensors}

    @property
    def nodes(self) -> list[str]:
        """The kinds of the nodes' operations, in order."""
        return [str(node["type"]) for node in self._nodes]

    def compile(self, *, engine: str | None = None, knobs: Mapping[str, int | float | str] | None = None, device: str = "cpu",
                backend: _native.Backend | None = None) -> Plan:
        """A plan by the named engine, or by the first that takes the graph and works in the memory of `device`: `"cpu"`, or
        `"rocm"` for an AMD GPU. Raises `PlanError` with each engine's reason if there is none."""
        graph = self._checked()
        opened = backend or default_backend()
        chosen = list((knobs or {}).items())
        return Plan(opened, graph, opened.plan(graph, engine, chosen, device), device, chosen)

    def load_plan(self, bytes: bytes, *, device: str = "cpu", backend: _native.Backend | None = None) -> Plan:
        """The plan of this graph that `Plan.to_bytes` gave: nothing is searched or compiled. Stored plans are code; load those
        that you trust."""
        graph = self._checked()
        opened = backend or default_backend()
        return Plan(opened, graph, opened.stored_plan(graph, bytes, device), device)

    def explain(self, *, device: str = "cpu", backend: _native.Backend | None = None) -> str:
        """What each engine says of the graph with tensors in the memory of `device`: how it computes it, or why it declines."""
        return explain(backend or default_backend(), self._checked(), device)

    def _checked(self) -> _native.Graph:
        names = [tensor["name"] for tensor in self._tensors]
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise _native.GraphError(f"expected names that differ, got {twice!r} twice")
        return _native.Graph.from_json(json.dumps({**self._description, "tensors": self._tensors, "nodes": self._nodes}))

    # Tensors

    def input(self, name: str, shape: Sequence[int], dtype: str | None = None, *, strides: Sequence[int] | None = None,
              layout: str | None = None) -> Tensor:
        """An array that calls of the plan are given. It is packed, unless `strides` (in elements) say otherwise, or
        `layout="channels_last"`."""
        return self._tensor(name, shape, dtype or self._description["io_data_type"], strides, layout)

    def scalar(self, name: str, dtype: str | None = None) -> Tensor:
        """A number that calls of the plan are given."""
        tensor = self._tensor(name, (1,), dtype or self._description["io_data_type"])
        tensor._description["is_runtime_pass_by_value"] = True
        return tensor

    def constant(self, value: int | float | bool, dtype: str | None = None) -> Tensor:
        """A number that is fixed in the graph."""
        dtype = dtype or self._description["io_data_type"]
        if dtype not in _VALUES:
            raise _native.GraphError(f"expected a constant's type among {', '.join(_VALUES)}, got {dtype}")
        if isinstance(value, float) and not math.isfinite(value):
            raise _native.GraphError(f"expected a finite constant, got {value}")
        number: int | float | bool = value
        if dtype == "boolean":
            number = bool(value)
        elif dtype in ("int32", "int64"):
            if value != int(value):
                raise _native.GraphError(f"expected a whole number for {dtype}, got {value}")
            number = int(value)
        else:
            number = float(value)
        tensor = self._tensor(f"t{self._next}", (1,), dtype)
        tensor._description.update(value_type=_VALUES[dtype], value=number)
        return tensor

    def output(self, tensor: Tensor, name: str | None = None, *, strides: Sequence[int] | None = None, layout: str | None = None) -> Tensor:
        """Has calls of the plan return a tensor, under a name; returns it."""
        description = tensor._description
        if tensor.graph is not self:
            raise _native.GraphError(f"expected a tensor of this graph, got {tensor}")
        description["virtual"] = False
        description["name"] = name or description["name"]
        if strides is not None or layout is not None:
            description["strides"] = _strides(tensor.shape, strides, layout)
        return tensor

    def _tensor(self, name: str, shape: Iterable[int], dtype: str, strides: Sequence[int] | None = None, layout: str | None = None,
                virtual: bool = False) -> Tensor:
        dims = [int(extent) for extent in shape]
        # An element's own alignment: arrays of NumPy promise no more.
        description = {"uid": self._next, "name": name, "data_type": dtype, "dims": dims, "strides": _strides(dims, strides, layout),
                       "virtual": virtual, "alignment": _BITS.get(dtype, 8) // 8}
        self._next += 1
        self._tensors.append(description)
        return Tensor(self, description)

    # Nodes

    def node(self, kind: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], parameters: Mapping[str, Any] | None = None, *,
             compute_dtype: str | None = None) -> None:
        """Adds a node of any kind, by the names of hipDNN's JSON form (`"MatmulAttributes"`, `{"a_tensor_uid": …}`); tensors stand
        for their uids."""
        def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
            return {key: _uids(value, self) for key, value in fields.items()}

        self._nodes.append({"name": "", "type": kind, "compute_data_type": compute_dtype or "unset", "inputs": plain(inputs),
                            "outputs": plain(outputs), "parameters": plain(parameters or {})})

    def result(self, shape: Iterable[int], dtype: str, *, like: Tensor | None = None) -> Tensor:
        """A tensor for `node` to write: of the graph's own, with the layout of `like` if that is channels last."""
        dims = list(shape)
        layout = "channels_last" if like is not None and len(dims) > 2 and _is_channels_last(like) else None
        return self._tensor(f"t{self._next}", dims, dtype, layout=layout, virtual=True)

    def _operand(self, value: Operand, dtype: str) -> Tensor:
        return value if isinstance(value, Tensor) else self.constant(value, dtype if dtype in _VALUES else "float")

    def pointwise(self, mode: str, *operands: Operand, dtype: str | None = None, **attributes: float | int) -> Tensor:
        """An element-wise operation by hipDNN's name of its mode (`"relu_fwd"`, `"gelu_bwd"`); the gradients' operands are x and dy.
        Extents of 1 broadcast, as do numbers. `attributes` are the mode's own: `elu_alpha`, `swish_beta`, …."""
        modes = dict(_native.pointwise_modes())
        if mode not in modes:
            raise _native.GraphError(f"expected a pointwise mode among {', '.join(modes)}, got {mode}")
        if len(operands) != modes[mode]:
            raise _native.GraphError(f"{mode}: expected {modes[mode]} operands, got {len(operands)}")
        first = next((operand for operand in operands if isinstance(operand, Tensor)), None)
        if first is None:
            raise _native.GraphError(f"{mode}: expected a tensor among the operands, got numbers")
        tensors = [self._operand(operand, first.dtype) for operand in operands]
        y = self.result(_broadcast(mode, tensors), dtype or first.dtype, like=max(tensors, key=lambda tensor: math.prod(tensor.shape)))
        inputs: dict[str, Any] = {f"in_{i}_tensor_uid": tensor for i, tensor in enumerate(tensors)}
        self.node("PointwiseAttributes", {"operation": mode, **inputs, **attributes}, {"out_0_tensor_uid": y})
        return y

    def relu(self, x: Tensor, *, lower: float | None = None, upper: float | None = None, slope: float | None = None,
             dtype: str | None = None) -> Tensor:
        """`x` where it is above `lower` (0), else `lower + slope * (x - lower)`; no more than `upper`."""
        clips = {"relu_lower_clip": lower, "relu_upper_clip": upper, "relu_lower_clip_slope": slope}
        return self.pointwise("relu_fwd", x, dtype=dtype, **{name: clip for name, clip in clips.items() if clip is not None})

    def elu(self, x: Tensor, alpha: float = 1.0, *, dtype: str | None = None) -> Tensor:
        """`x` above 0, else `alpha * (exp(x) - 1)`."""
        return self.pointwise("elu_fwd", x, dtype=dtype, elu_alpha=alpha)

    def softplus(self, x: Tensor, beta: float = 1.0, *, dtype: str | None = None) -> Tensor:
        """`log(1 + exp(beta * x)) / beta`."""
        return self.pointwise("softplus_fwd", x, dtype=dtype, softplus_beta=beta)

    def swish(self, x: Tensor, beta: float = 1.0, *, dtype: str | None = None) -> Tensor:
        """`x * sigmoid(beta * x)`."""
        return self.pointwise("swish_fwd", x, dtype=dtype, swish_beta=beta)

    def gelu(self, x: Tensor, *, approximate: bool = False, dtype: str | None = None) -> Tensor:
        """`x` times the normal distribution's function at `x`, or its approximation by a hyperbolic tangent."""
        return self.pointwise("gelu_approx_tanh_fwd" if approximate else "gelu_fwd", x, dtype=dtype)

    def index(self, x: Tensor, axis: int, *, dtype: str | None = None) -> Tensor:
        """The index of each element along a dimension, in the shape of `x`."""
        return self.pointwise("gen_index", x, dtype=dtype, axis_tensor_uid=_axis(axis, len(x.shape)))

    def where(self, condition: Tensor, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """`a` where the condition is not 0, else `b`."""
        first = next((operand for operand in (a, b) if isinstance(operand, Tensor)), condition)
        x, y = self._operand(a, first.dtype), self._operand(b, first.dtype)
        return self.pointwise("binary_select", x, y, condition, dtype=dtype or first.dtype)

    def abs(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """The magnitude."""
        return self.pointwise("abs", x, dtype=dtype)

    def ceil(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """Rounded up."""
        return self.pointwise("ceil", x, dtype=dtype)

    def erf(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """The error function."""
        return self.pointwise("erf", x, dtype=dtype)

    def exp(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """`e ** x`."""
        return self.pointwise("exp", x, dtype=dtype)

    def floor(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """Rounded down."""
        return self.pointwise("floor", x, dtype=dtype)

    def log(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """The natural logarithm."""
        return self.pointwise("log", x, dtype=dtype)

    def logical_not(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """1 where `x` is 0, else 0."""
        return self.pointwise("logical_not", x, dtype=dtype)

    def negative(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """`-x`."""
        return self.pointwise("neg", x, dtype=dtype)

    def reciprocal(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """`1 / x`."""
        return self.pointwise("reciprocal", x, dtype=dtype)

    def rsqrt(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """`1 / sqrt(x)`."""
        return self.pointwise("rsqrt", x, dtype=dtype)

    def sin(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """The sine."""
        return self.pointwise("sin", x, dtype=dtype)

    def sqrt(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """The square root."""
        return self.pointwise("sqrt", x, dtype=dtype)

    def tan(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """The tangent."""
        return self.pointwise("tan", x, dtype=dtype)

    def tanh(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """The hyperbolic tangent."""
        return self.pointwise("tanh_fwd", x, dtype=dtype)

    def sigmoid(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """`1 / (1 + exp(-x))`."""
        return self.pointwise("sigmoid_fwd", x, dtype=dtype)

    def identity(self, x: Tensor, *, dtype: str | None = None) -> Tensor:
        """`x`, in another type or layout."""
        return self.pointwise("identity", x, dtype=dtype)

    def add(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """`a + b`."""
        return self.pointwise("add", a, b, dtype=dtype)

    def subtract(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """`a - b`."""
        return self.pointwise("sub", a, b, dtype=dtype)

    def multiply(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """`a * b`."""
        return self.pointwise("mul", a, b, dtype=dtype)

    def divide(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """`a / b`."""
        return self.pointwise("div", a, b, dtype=dtype)

    def maximum(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """The larger one."""
        return self.pointwise("max_op", a, b, dtype=dtype)

    def minimum(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """The smaller one."""
        return self.pointwise("min_op", a, b, dtype=dtype)

    def add_square(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """`a + b * b`."""
        return self.pointwise("add_square", a, b, dtype=dtype)

    def equal(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """1 where `a == b`, else 0."""
        return self.pointwise("cmp_eq", a, b, dtype=dtype)

    def not_equal(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """1 where `a != b`, else 0."""
        return self.pointwise("cmp_neq", a, b, dtype=dtype)

    def greater(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """1 where `a > b`, else 0."""
        return self.pointwise("cmp_gt", a, b, dtype=dtype)

    def greater_equal(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """1 where `a >= b`, else 0."""
        return self.pointwise("cmp_ge", a, b, dtype=dtype)

    def less(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """1 where `a < b`, else 0."""
        return self.pointwise("cmp_lt", a, b, dtype=dtype)

    def less_equal(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """1 where `a <= b`, else 0."""
        return self.pointwise("cmp_le", a, b, dtype=dtype)

    def logical_and(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """1 where neither is 0, else 0."""
        return self.pointwise("logical_and", a, b, dtype=dtype)

    def logical_or(self, a: Operand, b: Operand, *, dtype: str | None = None) -> Tensor:
        """0 where both are 0, else 1."""
        return self.pointwise("logical_or", a, b, dtype=dtype)

    def sum(self, x: Tensor, axis: Axes = None, *, dtype: str | None = None) -> Tensor:
        """The sum along dimensions, all if none is named; each has extent 1 then."""
        return self.reduce("add", x, axis, dtype=dtype)

    def prod(self, x: Tensor, axis: Axes = None, *, dtype: str | None = None) -> Tensor:
        """The product along dimensions, all if none is named; each has extent 1 then."""
        return self.reduce("mul", x, axis, dtype=dtype)

    def min(self, x: Tensor, axis: Axes = None, *, dtype: str | None = None) -> Tensor:
        """The least element along dimensions, all if none is named; each has extent 1 then."""
        return self.reduce("min", x, axis, dtype=dtype)

    def max(self, x: Tensor, axis: Axes = None, *, dtype: str | None = None) -> Tensor:
        """The largest element along dimensions, all if none is named; each has extent 1 then."""
        return self.reduce("max", x, axis, dtype=dtype)

    def mean(self, x: Tensor, axis: Axes = None, *, dtype: str | None = None) -> Tensor:
        """The mean along dimensions, all if none is named; each has extent 1 then."""
        return self.reduce("avg", x, axis, dtype=dtype)

    def absmax(self, x: Tensor, axis: Axes = None, *, dtype: str | None = None) -> Tensor:
        """The largest magnitude along dimensions, all if none is named; each has extent 1 then."""
        return self.reduce("amax", x, axis, dtype=dtype)

    def norm1(self, x: Tensor, axis: Axes = None, *, dtype: str | None = None) -> Tensor:
        """The sum of magnitudes along dimensions, all if none is named; each has extent 1 then."""
        return self.reduce("norm1", x, axis, dtype=dtype)

    def norm2(self, x: Tensor, axis: Axes = None, *, dtype: str | None = None) -> Tensor:
        """The root of the sum of squares along dimensions, all if none is named; each has extent 1 then."""
        return self.reduce("norm2", x, axis, dtype=dtype)

    def reduce(self, mode: str, x: Tensor, axis: Axes = None, *, dtype: str | None = None) -> Tensor:
        """A reduction by hipDNN's name of its mode along dimensions, all if none is named; each has extent 1 then."""
        rank = len(x.shape)
        axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
        reduced = {_axis(one, rank) for one in axes}
        y = self.result([1 if i in reduced else extent for i, extent in enumerate(x.shape)], dtype or x.dtype, like=x)
        self.node("ReductionAttributes", {"in_tensor_uid": x}, {"out_tensor_uid": y}, {"mode": mode})
        return y

    def softmax(self, x: Tensor, axis: int = -1) -> Tensor:
        """`exp(x)` over its sum along a dimension, as nodes that engines fuse."""
        e = self.exp(x - self.max(x, axis))
        return e / self.sum(e, axis)

    def matmul(self, a: Tensor, b: Tensor, *, dtype: str | None = None) -> Tensor:
        """The product of the matrices in the last two dimensions; the others broadcast."""
        if len(a.shape) != len(b.shape) or len(a.shape) < 2:
            raise _native.GraphError(f"matmul: expected matrices of as many dimensions, got {a.shape} and {b.shape}")
        batch = [max(one, other) for one, other in zip(a.shape[:-2], b.shape[:-2])]
        c = self.result([*batch, a.shape[-2], b.shape[-1]], dtype or a.dtype)
        self.node("MatmulAttributes", {"a_tensor_uid": a, "b_tensor_uid": b}, {"c_tensor_uid": c})
        return c

    def conv(self, x: Tensor, w: Tensor, *, padding: Padding = 0, stride: Spatial = 1, dilation: Spatial = 1, flip: bool = False,
             dtype: str | None = None) -> Tensor:
        """The cross-correlation of images (N, C, …) with filters (K, C / groups, …); with `flip` the convolution."""
        geometry = _Convolution(x, padding, stride, dilation, flip)
        extents = [geometry.output(i, x.shape[i + 2], w.shape[i + 2]) for i in range(geometry.spatial)] if len(w.shape) == len(x.shape) else []
        y = self.result([x.shape[0], w.shape[0], *extents], dtype or x.dtype, like=x)
        self.node("ConvolutionFwdAttributes", {"x_tensor_uid": x, "w_tensor_uid": w}, {"y_tensor_uid": y}, geometry.parameters)
        return y

    def conv_dgrad(self, dy: Tensor, w: Tensor, shape: Sequence[int], *, padding: Padding = 0, stride: Spatial = 1,
                   dilation: Spatial = 1, flip: bool = False, dtype: str | None = None) -> Tensor:
        """The gradient of `conv` by its images, which are of that shape; also the transposed convolution."""
        geometry = _Convolution(dy, padding, stride, dilation, flip)
        dx = self.result(shape, dtype or dy.dtype, like=dy)
        self.node("ConvolutionBwdAttributes", {"dy_tensor_uid": dy, "w_tensor_uid": w}, {"dx_tensor_uid": dx}, geometry.parameters)
        return dx

    def conv_wgrad(self, x: Tensor, dy: Tensor, shape: Sequence[int], *, padding: Padding = 0, stride: Spatial = 1,
                   dilation: Spatial = 1, flip: bool = False, dtype: str | None = None) -> Tensor:
        """The gradient of `conv` by its filters, which are of that shape."""
        geometry = _Convolution(x, padding, stride, dilation, flip)
        dw = self.result(shape, dtype or x.dtype, like=x)
        self.node("ConvolutionWrwAttributes", {"x_tensor_uid": x, "dy_tensor_uid": dy}, {"dw_tensor_uid": dw}, geometry.parameters)
        return dw

    def max_pool(self, x: Tensor, window: Spatial, *, stride: Spatial | None = None, padding: Padding = 0) -> Tensor:
        """The largest element of each window; `stride` is the window's size if none is given."""
        return self._pool(x, window, stride, padding, "maxpool", "neg_inf_pad")[0]

    def max_pool_with_index(self, x: Tensor, window: Spatial, *, stride: Spatial | None = None, padding: Padding = 0) -> tuple[Tensor, Tensor]:
        """`max_pool`, and the place of each element in its window, for `max_pool_grad`."""
        y, index = self._pool(x, window, stride, padding, "maxpool", "neg_inf_pad", index=True)
        assert index is not None
        return y, index

    def avg_pool(self, x: Tensor, window: Spatial, *, stride: Spatial | None = None, padding: Padding = 0, count_padding: bool = False) -> Tensor:
        """The mean of each window, with the zeros around the image counted or not."""
        mode = "avgpool_include_padding" if count_padding else "avgpool_exclude_padding"
        return self._pool(x, window, stride, padding, mode, "zero_pad")[0]

    def max_pool_grad(self, dy: Tensor, index: Tensor, shape: Sequence[int], window: Spatial, *, stride: Spatial | None = None,
                      padding: Padding = 0) -> Tensor:
        """The gradient of `max_pool` by its images, which are of that shape."""
        return self._pool_grad(dy, shape, window, stride, padding, "maxpool", "neg_inf_pad", index)

    def avg_pool_grad(self, dy: Tensor, shape: Sequence[int], window: Spatial, *, stride: Spatial | None = None, padding: Padding = 0,
                      count_padding: bool = False) -> Tensor:
        """The gradient of `avg_pool` by its images, which are of that shape."""
        mode = "avgpool_include_padding" if count_padding else "avgpool_exclude_padding"
        return self._pool_grad(dy, shape, window, stride, padding, mode, "zero_pad", None)

    def _pool(self, x: Tensor, window: Spatial, stride: Spatial | None, padding: Padding, mode: str, pads: str,
              index: bool = False) -> tuple[Tensor, Tensor | None]:
        spatial = len(x.shape) - 2
        sizes = _spatial("window", window, spatial)
        steps = _spatial("stride", sizes if stride is None else stride, spatial)
        before, after = _padding(padding, spatial)
        extents = [(x.shape[i + 2] + before[i] + after[i] - sizes[i]) // max(steps[i], 1) + 1 for i in range(spatial)]
        shape = [*x.shape[:2], *extents]
        y = self.result(shape, x.dtype, like=x)
        indices = self.result(shape, "int32", like=x) if index else None
        self.node("ResampleFwdAttributes", {"x_tensor_uid": x}, {"y_tensor_uid": y, "index_tensor_uid": indices},
                  {"pre_padding": before, "post_padding": after, "stride": steps, "window": sizes, "resample_mode": mode,
                   "padding_mode": pads, "generate_index": index})
        return y, indices

    def _pool_grad(self, dy: Tensor, shape: Sequence[int], window: Spatial, stride: Spatial | None, padding: Padding, mode: str, pads: str,
                   index: Tensor | None) -> Tensor:
        spatial = len(dy.shape) - 2
        sizes = _spatial("window", window, spatial)
        before, after = _padding(padding, spatial)
        dx = self.result(shape, dy.dtype, like=dy)
        self.node("ResampleBwdAttributes", {"dy_tensor_uid": dy, "index_tensor_uid": index}, {"dx_tensor_uid": dx},
                  {"pre_padding": before, "post_padding": after, "stride": _spatial("stride", sizes if stride is None else stride, spatial),
                   "window": sizes, "resample_mode": mode, "padding_mode": pads})
        return dx

    def batch_norm(self, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: Operand = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
        """Normalization of each channel by the batch's own statistics: the result, the mean and the inverse deviation."""
        y, mean, inverse = self.result(x.shape, x.dtype, like=x), self.result(scale.shape, scale.dtype), self.result(scale.shape, scale.dtype)
        self.node("BatchnormAttributes", {"x_tensor_uid": x, "scale_tensor_uid": scale, "bias_tensor_uid": bias,
                                          "epsilon_tensor_uid": self._operand(epsilon, "float"), "peer_stats_tensor_uid": []},
                  {"y_tensor_uid": y, "mean_tensor_uid": mean, "inv_variance_tensor_uid": inverse})
        return y, mean, inverse

    def batch_norm_inference(self, x: Tensor, mean: Tensor, variance: Tensor, scale: Tensor, bias: Tensor, *, epsilon: Operand = 1e-5) -> Tensor:
        """Normalization of each channel by given statistics."""
        y = self.result(x.shape, x.dtype, like=x)
        self.node("BatchnormInferenceAttributesVarianceExt",
                  {"x_tensor_uid": x, "mean_tensor_uid": mean, "variance_tensor_uid": variance, "scale_tensor_uid": scale,
                   "bias_tensor_uid": bias, "epsilon_tensor_uid": self._operand(epsilon, "float")}, {"y_tensor_uid": y})
        return y

    def batch_norm_apply(self, x: Tensor, mean: Tensor, inverse: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        """Normalization of each channel by given means and inverse deviations."""
        y = self.result(x.shape, x.dtype, like=x)
        self.node("BatchnormInferenceAttributes", {"x_tensor_uid": x, "mean_tensor_uid": mean, "inv_variance_tensor_uid": inverse,
                                                   "scale_tensor_uid": scale, "bias_tensor_uid": bias}, {"y_tensor_uid": y})
        return y

    def batch_norm_grad(self, dy: Tensor, x: Tensor, scale: Tensor, mean: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of `batch_norm` by its images, scale and bias."""
        dx, dscale, dbias = self.result(x.shape, x.dtype, like=x), self.result(scale.shape, scale.dtype), self.result(scale.shape, scale.dtype)
        self.node("BatchnormBackwardAttributes", {"dy_tensor_uid": dy, "x_tensor_uid": x, "mean_tensor_uid": mean,
                                                  "inv_variance_tensor_uid": inverse, "scale_tensor_uid": scale, "peer_stats_tensor_uid": []},
                  {"dx_tensor_uid": dx, "dscale_tensor_uid": dscale, "dbias_tensor_uid": dbias})
        return dx, dscale, dbias

    def layer_norm(self, x: Tensor, scale: Tensor, bias: Tensor, *, dims: int = 1, epsilon: Operand = 1e-5) -> Tensor:
        """Normalization over the last `dims` dimensions."""
        y = self.result(x.shape, x.dtype, like=x)
        self._layer_norm(x, scale, bias, dims, epsilon, {"y_tensor_uid": y}, "INFERENCE")
        return y

    def layer_norm_training(self, x: Tensor, scale: Tensor, bias: Tensor, *, dims: int = 1, epsilon: Operand = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
        """`layer_norm`, with the mean and the inverse deviation of each row."""
        rows = [*x.shape[:len(x.shape) - dims], *[1] * dims]
        y, mean, inverse = self.result(x.shape, x.dtype, like=x), self.result(rows, "float"), self.result(rows, "float")
        outputs = {"y_tensor_uid": y, "mean_tensor_uid": mean, "inv_variance_tensor_uid": inverse}
        self._layer_norm(x, scale, bias, dims, epsilon, outputs, "TRAINING")
        return y, mean, inverse

    def _layer_norm(self, x: Tensor, scale: Tensor, bias: Tensor, dims: int, epsilon: Operand, outputs: dict[str, Tensor], phase: str) -> None:
        inputs = {"x_tensor_uid": x, "scale_tensor_uid": scale, "bias_tensor_uid": bias, "epsilon_tensor_uid": self._operand(epsilon, "float")}
        self.node("LayernormAttributes", inputs, outputs, {"normalized_dim_count": dims, "forward_phase": phase})

    def layer_norm_grad(self, dy: Tensor, x: Tensor, scale: Tensor, mean: Tensor, inverse: Tensor, *, dims: int = 1) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of `layer_norm` by its operands."""
        dx, dscale, dbias = self.result(x.shape, x.dtype, like=x), self.result(scale.shape, scale.dtype), self.result(scale.shape, scale.dtype)
        self.node("LayernormBackwardAttributes", {"dy_tensor_uid": dy, "x_tensor_uid": x, "scale_tensor_uid": scale, "mean_tensor_uid": mean,
                                                  "inv_variance_tensor_uid": inverse},
                  {"dx_tensor_uid": dx, "dscale_tensor_uid": dscale, "dbias_tensor_uid": dbias}, {"normalized_dim_count": dims})
        return dx, dscale, dbias

    def rms_norm(self, x: Tensor, scale: Tensor, bias: Tensor | None = None, *, epsilon: Operand = 1e-5) -> Tensor:
        """`x` over the root of its mean square along the dimensions of the scale, times the scale."""
        y = self.result(x.shape, x.dtype, like=x)
        self._rms_norm(x, scale, bias, epsilon, {"y_tensor_uid": y}, "INFERENCE")
        return y

    def rms_norm_training(self, x: Tensor, scale: Tensor, bias: Tensor | None = None, *, epsilon: Operand = 1e-5) -> tuple[Tensor, Tensor]:
        """`rms_norm`, with the inverse of each row's root."""
        rows = [1 if own > 1 else extent for extent, own in zip(x.shape, scale.shape)]
        y, inverse = self.result(x.shape, x.dtype, like=x), self.result(rows, "float")
        self._rms_norm(x, scale, bias, epsilon, {"y_tensor_uid": y, "inv_rms_tensor_uid": inverse}, "TRAINING")
        return y, inverse

    def _rms_norm(self, x: Tensor, scale: Tensor, bias: Tensor | None, epsilon: Operand, outputs: dict[str, Tensor], phase: str) -> None:
        inputs = {"x_tensor_uid": x, "scale_tensor_uid": scale, "epsilon_tensor_uid": self._operand(epsilon, "float"), "bias_tensor_uid": bias}
        self.node("RMSNormAttributes", inputs, outputs, {"forward_phase": phase})

    def rms_norm_grad(self, dy: Tensor, x: Tensor, scale: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of `rms_norm` by its operand and scale."""
        dx, dscale = self.result(x.shape, x.dtype, like=x), self.result(scale.shape, scale.dtype)
        self.node("RMSNormBackwardAttributes", {"dy_tensor_uid": dy, "x_tensor_uid": x, "scale_tensor_uid": scale, "inv_rms_tensor_uid": inverse},
                  {"dx_tensor_uid": dx, "dscale_tensor_uid": dscale})
        return dx, dscale

    def sdpa(self, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, causal: bool = False, scale: float | None = None) -> Tensor:
        """Attention over (batch, heads, length, depth); several heads of `q` may share one of `k` and `v`. `mask` is added to
        the scores; `scale` is `1 / sqrt(depth)` if none is given."""
        o = self._attended(q, v)
        self._sdpa(q, k, v, {"o_tensor_uid": o}, mask, causal, scale)
        return o

    def sdpa_training(self, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, causal: bool = False,
                      scale: float | None = None) -> tuple[Tensor, Tensor]:
        """`sdpa`, with the logarithm of each row's sum, for `sdpa_grad`."""
        o, stats = self._attended(q, v), self.result([*q.shape[:-1], 1], "float")
        self._sdpa(q, k, v, {"o_tensor_uid": o, "stats_tensor_uid": stats}, mask, causal, scale)
        return o, stats

    def _attended(self, q: Tensor, v: Tensor) -> Tensor:
        return self.result([*q.shape[:-1], v.shape[-1]], q.dtype)

    def _sdpa(self, q: Tensor, k: Tensor, v: Tensor, outputs: dict[str, Tensor], mask: Tensor | None, causal: bool, scale: float | None) -> None:
        self.node("SdpaAttributes", {"q_tensor_uid": q, "k_tensor_uid": k, "v_tensor_uid": v, "attn_mask_tensor_uid": mask}, outputs,
                  {"generate_stats": "stats_tensor_uid" in outputs, "attn_scale_value": _scale(q, scale), **_attention(causal),
                   "mma_core_mode": "unset", "implementation": "AUTO"})

    def sdpa_grad(self, q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, stats: Tensor, *, causal: bool = False,
                  scale: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of `sdpa` by its operands, from its result, the result's gradient and the statistics."""
        dq, dk, dv = (self.result(tensor.shape, tensor.dtype) for tensor in (q, k, v))
        self.node("SdpaBackwardAttributes", {"q_tensor_uid": q, "k_tensor_uid": k, "v_tensor_uid": v, "o_tensor_uid": o, "do_tensor_uid": do,
                                             "stats_tensor_uid": stats},
                  {"dq_tensor_uid": dq, "dk_tensor_uid": dk, "dv_tensor_uid": dv}, {"attn_scale_value": _scale(q, scale), **_attention(causal)})
        return dq, dk, dv

    def block_dequantize(self, x: Tensor, scale: Tensor, block: Sequence[int], *, dtype: str = "float") -> Tensor:
        """Each block of `x` times its scale."""
        y = self.result(x.shape, dtype, like=x)
        self.node("BlockScaleDequantizeAttributes", {"x_tensor_uid": x, "scale_tensor_uid": scale}, {"y_tensor_uid": y},
                  {"block_size": list(block), "is_negative_scale": False})
        return y

    def block_quantize(self, x: Tensor, block: int, *, axis: int = -1, dtype: str = "fp8_e4m3", scale_dtype: str = "fp8_e8m0") -> tuple[Tensor, Tensor]:
        """`x` in few bits, and the scale of each block along a dimension."""
        along = _axis(axis, len(x.shape))
        blocks = [-(-extent // block) if i == along else extent for i, extent in enumerate(x.shape)]
        y, scale = self.result(x.shape, dtype, like=x), self.result(blocks, scale_dtype)
        self.node("BlockScaleQuantizeAttributes", {"x_tensor_uid": x}, {"y_tensor_uid": y, "scale_tensor_uid": scale},
                  {"block_size": block, "axis": along, "transpose": False})
        return y, scale


class _Convolution:
    """The geometry of a convolution, as hipDNN spells it."""

    def __init__(self, image: Tensor, padding: Padding, stride: Spatial, dilation: Spatial, flip: bool) -> None:
        self.spatial = len(image.shape) - 2
        self.before, self.after = _padding(padding, self.spatial)
        self.stride = _spatial("stride", stride, self.spatial)
        self.dilation = _spatial("dilation", dilation, self.spatial)
        self.parameters = {"pre_padding": self.before, "post_padding": self.after, "stride": self.stride, "dilation": self.dilation,
                           "conv_mode": "CONVOLUTION" if flip else "CROSS_CORRELATION"}

    def output(self, i: int, extent: int, taps: int) -> int:
        """The extent of the result; at least 1, since it is for the whole graph's check to say what does not fit."""
        room = extent + self.before[i] + self.after[i] - self.dilation[i] * (taps - 1) - 1
        return max(room // max(self.stride[i], 1) + 1, 1)


def _spatial(name: str, value: Spatial, spatial: int) -> list[int]:
    entries = [value] * spatial if isinstance(value, int) else list(value)
    if len(entries) != spatial:
        raise _native.GraphError(f"{name}: expected {spatial} entries, one for each spatial dimension, got {len(entries)}")
    return entries


def _padding(value: Padding, spatial: int) -> tuple[list[int], list[int]]:
    entries: list[int | tuple[int, int]] = [value] * spatial if isinstance(value, int) else list(value)
    if len(entries) != spatial:
        raise _native.GraphError(f"padding: expected {spatial} entries, one for each spatial dimension, got {len(entries)}")
    pairs = [(entry, entry) if isinstance(entry, int) else entry for entry in entries]
    return [before for before, _ in pairs], [after for _, after in pairs]


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise _native.GraphError(f"axis: expected -{rank} to {rank - 1}, got {axis}")
    return axis % rank


def _attention(causal: bool) -> dict[str, Any]:
    return {"alibi_mask": False, "padding_mask": False, "causal_mask": causal, "causal_mask_bottom_right": False,
            "diagonal_alignment": "TOP_LEFT"}


def _scale(q: Tensor, scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if scale is None else scale


def _broadcast(mode: str, tensors: list[Tensor]) -> list[int]:
    """The shape of an element-wise result. One element broadcasts to any rank; of other tensors ranks are equal."""
    whole = [tensor.shape for tensor in tensors if math.prod(tensor.shape) != 1] or [max((tensor.shape for tensor in tensors), key=len)]
    if any(len(shape) != len(whole[0]) for shape in whole):
        raise _native.GraphError(f"{mode}: expected operands of as many dimensions, got {' and '.join(map(str, whole))}")
    return [max(extents) for extents in zip(*whole)]


def _strides(shape: Sequence[int], strides: Sequence[int] | None, layout: str | None) -> list[int]:
    if strides is not None:
        return [int(stride) for stride in strides]
    if layout not in (None, "channels_last"):
        raise _native.GraphError(f"layout: expected \"channels_last\" or None, got {layout!r}")
    order = list(range(len(shape)))
    if layout == "channels_last" and len(shape) > 1:
        order = [0, *order[2:], 1]
    packed, step = [0] * len(shape), 1
    for i in reversed(order):
        packed[i], step = step, step * shape[i]
    return packed


def _is_channels_last(tensor: Tensor) -> bool:
    """Whether its channels are innermost; where that is the packed layout, too, it is not."""
    return len(tensor.shape) > 2 and list(tensor.strides) == _strides(tensor.shape, None, "channels_last") != _strides(tensor.shape, None, None)


def _uids(value: Any, graph: Graph) -> Any:
    if isinstance(value, Tensor):
        if value.graph is not graph:
            raise _native.GraphError(f"expected a tensor of this graph, got {value}")
        return value.uid
    return [_uids(one, graph) for one in value] if isinstance(value, (list, tuple)) else value
