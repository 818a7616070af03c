"""hipDNN graphs: built with calls like NumPy's, planned by engines, run on arrays, explained.

A graph is a description; `compile` asks the engines of a hipDNN backend for a plan, and a plan is called with arrays:

>>> import numpy as np
>>> import hipdnn_rs
>>> graph = hipdnn_rs.Graph("norm")
>>> x = graph.input("x", (2, 3))
>>> y = graph.output(graph.sqrt(graph.sum(x * x, axis=1)), "y")
>>> plan = graph.compile()
>>> plan(x=np.array([[3, 0, 4], [0, 5, 12]], np.float32)).ravel().tolist()
[5.0, 13.0]
"""

from ._graph import Graph, Tensor
from ._native import Backend, BackendError, GraphError, PlanError
from ._plan import Plan, default_backend, numpy_dtype

__all__ = ["Backend", "BackendError", "Graph", "GraphError", "Plan", "PlanError", "Tensor", "default_backend", "numpy_dtype"]
