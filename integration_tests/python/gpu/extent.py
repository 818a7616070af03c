"""How much of the suites on a GPU is run, by GPU_EXTENT.

`sample`, the default, covers operators, types and kinds of calls; `thin` is for further releases of ONNX Runtime, to which the provider's own
code is the same; `all` runs everything (`cargo xtask test --whole`, hours).
"""

from __future__ import annotations

import os

EXTENTS = ("thin", "sample", "all")


def chosen() -> str:
    extent = os.environ.get("GPU_EXTENT", "sample")
    if extent not in EXTENTS:
        raise SystemExit(f"GPU_EXTENT: expected one of {', '.join(EXTENTS)}, got {extent}")
    return extent
