"""The oracle of class files: javap's output."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jvm.bytecode.class_file import Invoked
from jvm.bytecode.opcodes import OPCODE
from tests.jdks import tool


class Printed(NamedTuple):
    bci: int
    mnemonic: str  # of a wide instruction with _w behind it
    operands: str


@dataclass
class Listing:
    """A method with code."""

    instructions: list[Printed] = field(default_factory=list)
    arms: dict[int, list[tuple[str, int]]] = field(default_factory=dict)  # by bci of the switch: key or default, target
    handlers: list[tuple[int, int, int, str]] = field(default_factory=list)  # from, to, target, class or `any`
    lines: list[tuple[int, int]] = field(default_factory=list)  # bci, line

    def calls(self, own: str) -> dict[int, Invoked | None]:
        """By bci of each instruction, in the class `own`."""
        return {p.bci: _call(own, p.mnemonic, p.operands) for p in self.instructions}


Methods = dict[tuple[str, str], Listing | None]  # by name and descriptor; None: no code


def below(root: Path) -> dict[str, Path]:
    """The class files in a directory, by the name that their place gives them."""
    return {file.relative_to(root).with_suffix("").as_posix(): file for file in sorted(root.rglob("*.class"))}


def disassembled(files: dict[str, Path]) -> dict[str, Methods]:
    """By class (internal name)."""
    command = [tool("javap"), "-J-Dfile.encoding=UTF-8", "-J-Dstdout.encoding=UTF-8", "-c", "-p", "-s", "-l"]
    done = subprocess.run([*command, *map(str, files.values())], capture_output=True, check=True, timeout=300)
    texts = done.stdout.decode().split("\n}\n")
    assert texts.pop() == ""
    return {own: _methods(own, text) for own, text in zip(files, texts, strict=True)}


_DECLARED = re.compile(r"  (?:\S.* )?([^ (]+)\(.*")
_DESCRIBED = re.compile(r"    descriptor: (\(.*)")
_INSTRUCTION = re.compile(r" +(\d+): ([a-z]\w*)(.*)")
_ARM = re.compile(r" +(-?\d+|default): (\d+)")
_HANDLER = re.compile(r" +(\d+) +(\d+) +(\d+) +(?:Class (.*)|(any))")
_LINE = re.compile(r" +line (\d+): (\d+)")


def _methods(own: str, text: str) -> Methods:
    found: Methods = {}
    name, listing = "", Listing()
    for line in text.splitlines():
        if line == "  static {};":
            name = "<clinit>"
        elif declared := _DECLARED.fullmatch(line):
            name = "<init>" if declared[1] == own.replace("/", ".") else declared[1]
        elif described := _DESCRIBED.fullmatch(line):
            key = name, described[1]
            assert key not in found
            found[key] = None
        elif line == "    Code:":
            found[key] = listing = Listing()
        elif printed := _INSTRUCTION.fullmatch(line):
            listing.instructions.append(Printed(int(printed[1]), printed[2], printed[3].strip()))
        elif arm := _ARM.fullmatch(line):
            listing.arms.setdefault(listing.instructions[-1].bci, []).append((arm[1], int(arm[2])))
        elif handler := _HANDLER.fullmatch(line):
            covers = int(handler[1]), int(handler[2]), int(handler[3])
            listing.handlers.append((*covers, (handler[4] or handler[5]).replace('"', "")))
        elif at := _LINE.fullmatch(line):
            listing.lines.append((int(at[2]), int(at[1])))
    return found


def _call(own: str, mnemonic: str, operands: str) -> Invoked | None:
    if not mnemonic.startswith("invoke"):
        return None
    said = operands.split("// ")[1].replace('"', "")
    if dynamic := re.fullmatch(r"InvokeDynamic #\d+:(.*?):(.*)", said):
        return Invoked(OPCODE[mnemonic], "", dynamic[1], dynamic[2])
    named = re.fullmatch(r"(?:Interface)?Method (?:(.*)\.)?(.*?):(\(.*)", said)
    assert named is not None, said
    return Invoked(OPCODE[mnemonic], named[1] or own, named[2], named[3])
