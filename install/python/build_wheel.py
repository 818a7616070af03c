#!/usr/bin/env python3
"""Builds the wheel from a Python package and ready-made libraries, with the standard library only.

The same input gives the same bytes: entries are sorted and carry a fixed date. The last line printed is the wheel's path.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import platform
import re
import sys
import zipfile
from pathlib import Path

# The earliest date that a zip entry can carry.
DATE = (1980, 1, 1, 0, 0, 0)
# The policy manylinux_2_17 is the oldest that pip knows for these architectures.
OLDEST_GLIBC = (2, 17)


def platform_tag(libraries: list[Path]) -> str:
    """The newest glibc symbol version that any library asks for decides on which systems the wheel may be installed."""
    needed = OLDEST_GLIBC
    for library in libraries:
        for major, minor in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])", library.read_bytes()):
            needed = max(needed, (int(major), int(minor)))
    return f"manylinux_{needed[0]}_{needed[1]}_{platform.machine()}"


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--distribution", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--summary", required=True)
    parser.add_argument("--package", type=Path, required=True, help="directory of the Python package")
    parser.add_argument("--license", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tag", default="py3-none", help="the Pythons and the ABI that it is for")
    parser.add_argument("--python", default=">=3.10", help="the versions of Python that it wants")
    parser.add_argument("--requires", action="append", default=[], help="a package that it wants")
    parser.add_argument("--readme", type=Path, help="description in Markdown")
    parser.add_argument("libraries", type=Path, nargs="+", help="placed side by side in the package")
    arguments = parser.parse_args()

    tag = f"{arguments.tag}-{platform_tag(arguments.libraries)}"
    name = arguments.distribution.replace("-", "_")
    info = f"{name}-{arguments.version}.dist-info"
    package = arguments.package.name

    entries: dict[str, bytes] = {}
    for source in (path for pattern in ("*.py", "*.pyi", "py.typed") for path in arguments.package.rglob(pattern)):
        entries[f"{package}/{source.relative_to(arguments.package).as_posix()}"] = source.read_bytes()
    for library in arguments.libraries:
        entries[f"{package}/{library.name}"] = library.read_bytes()
    for text in arguments.license:
        entries[f"{info}/licenses/{text.name}"] = text.read_bytes()
    metadata = ["Metadata-Version: 2.4", f"Name: {arguments.distribution}", f"Version: {arguments.version}",
                f"Summary: {arguments.summary}", "License-Expression: MIT OR Apache-2.0", f"Requires-Python: {arguments.python}",
                "Classifier: Typing :: Typed"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in arguments.requires]
    metadata += [f"License-File: {text.name}" for text in arguments.license]
    if arguments.readme:
        metadata += ["Description-Content-Type: text/markdown", "", arguments.readme.read_text(encoding="utf-8").rstrip()]
    entries[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
    entries[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: hipdnn-rs ({arguments.version})\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()

    arguments.out.mkdir(parents=True, exist_ok=True)
    wheel = arguments.out / f"{name}-{arguments.version}-{tag}.whl"
    # The record of a wheel is its last entry and lists itself without a digest.
    record = [f"{path},{digest(data)},{len(data)}" for path, data in sorted(entries.items())] + [f"{info}/RECORD,,"]
    ordered = sorted(entries.items()) + [(f"{info}/RECORD", ("\n".join(record) + "\n").encode())]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in ordered:
            entry = zipfile.ZipInfo(path, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, data)
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
