"""The groups of `suite_gpu.py`: each module has `cases(cache)`, which gives names and functions; `cache` is the directory of models."""
