"""The hipDNN execution provider for ONNX Runtime.

    import onnxruntime as ort
    import onnxruntime_ep_hipdnn_rs as ep

    ort.register_execution_provider_library("hipdnn_rs", ep.get_library_path())
    devices = [device for device in ort.get_ep_devices() if device.ep_name in ep.get_ep_names()]
    options = ort.SessionOptions()
    options.add_provider_for_devices(devices, {})
    session = ort.InferenceSession("model.onnx", options)

ONNX Runtime 1.23 or newer is needed; this package does not depend on one of its distributions, so that any of them will do.
"""

from pathlib import Path

__all__ = ["get_ep_name", "get_ep_names", "get_library_path"]

_LIBRARY = Path(__file__).resolve().parent / "libonnxruntime_providers_hipdnn_rs.so"


def get_library_path() -> str:
    """The library to pass to `onnxruntime.register_execution_provider_library`."""
    return str(_LIBRARY)


def get_ep_names() -> list[str]:
    """The names under which the library offers devices."""
    return ["HipDnnRsExecutionProvider"]


def get_ep_name() -> str:
    """The only one of `get_ep_names`."""
    return get_ep_names()[0]
