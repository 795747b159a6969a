"""The state of a module's sources: when machine code that was compiled of them is still theirs (`jvm.kernels`). Without
numba, whose import takes a second: most processes only want to know whether kernels are there."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))", re.M)


def digest(module: Path) -> str:
    """Of the contents of a module and of all modules of this project that it imports, 32 hex digits."""
    found: set[Path] = set()
    open_ = [module.resolve()]
    while open_:
        path = open_.pop()
        if path not in found:
            found.add(path)
            open_ += _imports(path)
    sha = hashlib.sha256(version("numba").encode())
    for path in sorted(found):
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
        sha.update(f"\0{name}\0".encode() + path.read_bytes())
    return sha.hexdigest()[:32]


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    """Files of this project that a module names in its import statements. A name in a docstring may be among them."""
    found: list[Path] = []
    for base, names, plain in _IMPORT.findall(path.read_text("utf-8")):
        modules = re.findall(r"[\w.]+", plain) or [base, *(f"{base}.{name}" for name in re.findall(r"\w+", names))]
        places = [ROOT / module.replace(".", "/") for module in modules]
        found += [file for p in places for file in (p.with_suffix(".py"), p / "__init__.py") if file.is_file()]
    return tuple(found)
