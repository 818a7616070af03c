"""A session of ONNX Runtime on the execution provider, in Python:

    python session.py MODEL [KEY=VALUE ...]

MODEL is a network with one input of floats and fixed extents, KEY an option of the provider. Prints the first output, a value a line.
"""

import sys

import numpy as np
import onnxruntime as ort
import onnxruntime_ep_hipdnn_rs as ep

model, *settings = sys.argv[1:]

ort.register_execution_provider_library("hipdnn_rs", ep.get_library_path())
devices = [device for device in ort.get_ep_devices() if device.ep_name in ep.get_ep_names()]
options = ort.SessionOptions()
options.add_provider_for_devices(devices[:1], dict(word.split("=", 1) for word in settings))
# Without the fallback a mistake is an error, and not a session on the CPU provider alone.
session = ort.InferenceSession(model, options, enable_fallback=0)

shape = session.get_inputs()[0].shape
values = (np.arange(np.prod(shape)) % 7 - 3).astype(np.float32).reshape(shape)
(result, *_) = session.run(None, {session.get_inputs()[0].name: values})
for value in result.flat:
    print(value)
