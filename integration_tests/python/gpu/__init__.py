"""The groups of `suite_gpu.py`: each module has `cases()`, which gives names and functions."""
