"""Cost tables: how many cycles a platform takes for each bytecode, and for code that a call or a return has to load.

The format is in docs/cost-tables.md; the shipped ones are files beside this one.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.opcodes import OPCODE
from jvm.inputfile import read_input

SUFFIX = ".toml"
MOST_BYTES = 1 << 16
MOST_CYCLES = 4095
"""Of a bytecode: a path's sum has 31 bits (stages.cct.tables)."""
_HERE = Path(__file__).parent
_KEYS = {"name", "source", "other", "bytecodes", "load"}
_LOAD = {"word_bytes", "cycles", "cycles_per_word", "hidden_in_call", "hidden_in_return", "share"}


class CostTableError(ValueError):
    """It is no such table; the message says why."""


@dataclass(frozen=True, slots=True)
class Load:
    """Of the code of a method that is gone to, by words. `share`: of calls and returns that have to load it."""

    word_bytes: int = 4
    cycles: float = 0.0
    cycles_per_word: float = 0.0
    hidden_in_call: float = 0.0
    hidden_in_return: float = 0.0
    share: float = 0.0

    def call(self, size: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) bytes of bytecode → (n,) cycles, for a call of such a method; 0 bytes: it has none, and loads none."""
        return self._beyond(size, self.hidden_in_call)

    def back(self, size: NDArray[np.int64]) -> NDArray[np.float64]:
        """For a return into one."""
        return self._beyond(size, self.hidden_in_return)

    def _beyond(self, size: NDArray[np.int64], hidden: float) -> NDArray[np.float64]:
        words = -(-size // self.word_bytes)
        spent = np.maximum(self.cycles + self.cycles_per_word * words - hidden, 0.0) * self.share
        return np.asarray(np.where(size > 0, spent, 0.0), np.float64)


@dataclass(frozen=True, slots=True)
class CostTable:
    name: str
    cycles: NDArray[np.int64]  # (256,) by opcode
    load: Load
    told: int  # opcodes that have a line of their own


def shipped() -> list[str]:
    return sorted(path.stem for path in _HERE.glob(f"*{SUFFIX}"))


def load(source: str) -> CostTable:
    """A shipped table by its name, or a file. Raises CostTableError, OSError."""
    path = _HERE / f"{source}{SUFFIX}" if source in shipped() else Path(source)
    try:
        return parsed(tomllib.loads(read_input(path, MOST_BYTES).decode()))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise CostTableError(f"not TOML: {error}") from None


def parsed(said: dict[str, Any]) -> CostTable:
    _known(said, _KEYS, "")
    name, bytecodes = said.get("name"), said.get("bytecodes")
    if not isinstance(name, str) or not name:
        raise CostTableError("name: a text")
    if not isinstance(bytecodes, dict) or not bytecodes:
        raise CostTableError("bytecodes: a table of mnemonics and cycles")
    _known(bytecodes, set(OPCODE), "bytecodes.")
    cycles = np.full(256, _cycles(said.get("other"), "other"), np.int64)
    for mnemonic, value in bytecodes.items():
        cycles[OPCODE[mnemonic]] = _cycles(value, f"bytecodes.{mnemonic}")
    part = said.get("load", {})
    if not isinstance(part, dict):
        raise CostTableError("load: a table")
    _known(part, _LOAD, "load.")
    for key, value in part.items():
        most = 1 if key == "share" else 1e6
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise CostTableError(f"load.{key}: a number from 0 to {most:g}")
    if not isinstance(words := part.get("word_bytes", 4), int) or words < 1:
        raise CostTableError("load.word_bytes: a whole number from 1 on")
    return CostTable(name, cycles, Load(**part), len(bytecodes))


def _known(said: dict[str, Any], keys: set[str], where: str) -> None:
    for key in said:
        if key not in keys:
            raise CostTableError(f"{where}{key}: there is no such line")


def _cycles(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_CYCLES:
        raise CostTableError(f"{name}: whole cycles, 0 to {MOST_CYCLES}")
    return value
