"""The state of a module's sources: when machine code that was compiled of them is still theirs (`jvm.kernels`). Without
numba, whose import takes a second: most processes only want to know whether kernels are there."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.metadata import version
from os.path import realpath, relpath
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))", re.M)


def digest(module: Path) -> str:
    """Of the contents of a module and of all modules of this project that it imports, 32 hex digits.

    Each process asks this for each of its modules with kernels, some eighty, so what is found of a file is kept: paths
    are strings here, which cost a tenth of `Path`."""
    found: set[str] = set()
    open_ = [realpath(module)]
    while open_:
        path = open_.pop()
        if path not in found:
            found.add(path)
            open_ += _source(path)[1]
    sha = hashlib.sha256(version("numba").encode())
    for path in sorted(found):
        sha.update(_source(path)[0])
    return sha.hexdigest()[:32]


@cache
def _source(path: str) -> tuple[bytes, tuple[str, ...]]:
    """Of a file: the digest of its name and content, and the files of this project that it names in its import
    statements. A name in a docstring may be among them."""
    name = relpath(path, ROOT) if path.startswith(f"{ROOT}/") else path.rpartition("/")[2]
    content = Path(path).read_bytes()
    modules: dict[str, None] = {}
    for base, names, plain in _IMPORT.findall(content.decode()):
        named = re.findall(r"[\w.]+", plain) or [base, *(f"{base}.{of}" for of in re.findall(r"\w+", names))]
        modules.update(dict.fromkeys(named))
    files = tuple(file for module in modules for file in _files(module))
    return hashlib.sha256(f"{name}\0".encode() + content).digest(), files


@cache
def _files(module: str) -> tuple[str, ...]:
    """The file of a module of this project; () for others."""
    place = f"{ROOT}/{module.replace('.', '/')}"
    return tuple(file for file in (f"{place}.py", f"{place}/__init__.py") if Path(file).is_file())
