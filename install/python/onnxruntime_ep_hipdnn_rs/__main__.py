"""Commands: `python -m onnxruntime_ep_hipdnn_rs doctor` says what this package finds on this machine."""

from __future__ import annotations

import argparse
import sys

from . import doctor


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m onnxruntime_ep_hipdnn_rs", description=__doc__)
    parser.add_argument("command", choices=["doctor"])
    parser.parse_args()
    return doctor.run()


if __name__ == "__main__":
    sys.exit(main())
