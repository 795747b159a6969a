"""The features of the emulated processor, and the sizes of its buffers (docs/emulator.md)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from jvm.faults import ExpectedError


class EmulatorError(ExpectedError):
    """The emulated PT cannot be built or started. One line, for the user."""


@dataclass(frozen=True, slots=True)
class EmulatorOptions:
    per_thread: bool = False
    aux_kib: int = 8192
    data_kib: int = 512
    psb_kib: int = 2
    tsc: bool = True
    mtc: int = -1
    cyc: int = -1
    retcomp: bool = True
    retcomp_strict: bool = False
    long_tnt: bool = False
    ovf_mb_s: float = 0.0
    psb_on_code_change: bool = False
    truth: Path | None = None

    def __post_init__(self) -> None:
        for name, least in (("aux_kib", 8), ("data_kib", 4)):
            size = getattr(self, name)
            if size < least or size & (size - 1) or size > 1 << 26:
                raise EmulatorError(f"{name}: {size} is not a power of two from {least} to {1 << 26}")
        for name, low, high in (("psb_kib", 1, 64), ("mtc", -1, 14), ("cyc", -1, 15), ("ovf_mb_s", 0, 1e6)):
            if not low <= getattr(self, name) <= high:
                raise EmulatorError(f"{name}: {getattr(self, name)} is not from {low} to {high:g}")

    @classmethod
    def from_fields(cls, source: Any) -> Self:
        """From anything with attributes of the same names, e.g. the configuration's section; the rest is default."""
        return cls(**{field.name: getattr(source, field.name) for field in fields(cls) if hasattr(source, field.name)})

    def arguments(self, directory: Path) -> str:
        """As QEMU's -plugin takes them. Raises EmulatorError for paths that it would cut at a comma."""
        words = [f"dir={directory}"]
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool):
                words.append(f"{field.name}={'on' if value else 'off'}")
            elif value is not None:
                words.append(f"{field.name}={value}")
        if any("," in word for word in words):
            raise EmulatorError(f"a comma in a path: QEMU cannot pass it on: {', '.join(words)}")
        return ",".join(words)
