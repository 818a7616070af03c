"""A convolution by MIOpen's own C API, without any library of this project."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from emulated_gpu import Memory

FLOAT, CROSS_CORRELATION = 1, 0


class Performance(ctypes.Structure):
    """`miopenConvAlgoPerf_t`."""

    _fields_ = [("algorithm", ctypes.c_int), ("time", ctypes.c_float), ("memory", ctypes.c_size_t)]


def convolve(x: np.ndarray, w: np.ndarray, pad: int) -> np.ndarray:
    """The convolution of packed float images and filters with stride 1, on the current device."""
    library = ctypes.CDLL("libMIOpen.so.1")

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(library, name)(*arguments):
            raise RuntimeError(f"{name} gave {code}")

    def created(name: str) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        call(name, ctypes.byref(handle))
        return handle

    handle = created("miopenCreate")
    descriptors = [created("miopenCreateTensorDescriptor") for _ in range(3)]
    convolution = created("miopenCreateConvolutionDescriptor")
    shape = (x.shape[0], w.shape[0], x.shape[2] + 2 * pad - w.shape[2] + 1, x.shape[3] + 2 * pad - w.shape[3] + 1)
    try:
        for descriptor, extents in zip(descriptors, (x.shape, w.shape, shape)):
            call("miopenSet4dTensorDescriptor", descriptor, FLOAT, *extents)
        call("miopenInitConvolutionDescriptor", convolution, CROSS_CORRELATION, pad, pad, 1, 1, 1, 1)
        wx, ww, wy = descriptors
        size, found, performance = ctypes.c_size_t(), ctypes.c_int(), Performance()
        call("miopenConvolutionForwardGetWorkSpaceSize", handle, ww, wx, convolution, wy, ctypes.byref(size))
        y = np.zeros(shape, np.float32)
        with Memory(x) as dx, Memory(w) as dw, Memory(y) as dy, Memory(max(size.value, 4)) as workspace:
            call("miopenFindConvolutionForwardAlgorithm", handle, wx, dx.address, ww, dw.address, convolution, wy, dy.address, 1,
                 ctypes.byref(found), ctypes.byref(performance), workspace.address, size, ctypes.c_bool(False))
            one, zero = ctypes.c_float(1), ctypes.c_float(0)
            call("miopenConvolutionForward", handle, ctypes.byref(one), wx, dx.address, ww, dw.address, convolution, performance.algorithm,
                 ctypes.byref(zero), wy, dy.address, workspace.address, size)
            return dy.read(shape)
    finally:
        for descriptor in descriptors:
            call("miopenDestroyTensorDescriptor", descriptor)
        call("miopenDestroyConvolutionDescriptor", convolution)
        call("miopenDestroy", handle)
