"""Landmarks of the interpreters of stock JDKs."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from jvm.agent.build import library
from jvm.bytecode.opcodes import KIND, NAMES, Kind
from jvm.code.image import CodeImage
from jvm.export.ring import RingReader
from stages.reconstruct import landmarks
from stages.reconstruct.tokens import Entry, Token
from tests.jdks import JDKS, java


def image_of(version: int, tmp_path: Path) -> CodeImage:
    ring = tmp_path / "ring"
    agent = f"-agentpath:{library()}=ring={ring},size=64m"
    subprocess.run([java(version), agent, "-Xint", "-version"], check=True, capture_output=True, timeout=120)
    image = CodeImage()
    with RingReader(ring) as reader:
        while data := reader.drain():
            image.feed(data)
        assert reader.dropped == 0
    return image


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize("version", JDKS)
def test_each_template_entry_and_exception_has_its_landmarks(version: int, tmp_path: Path) -> None:
    image = image_of(version, tmp_path)
    found = landmarks.find(image)
    assert found.complete
    here: dict[str, Counter[Token]] = {}
    for address, token in zip(found.address.tolist(), found.token.tolist(), strict=True):
        codelet = image.codelets.at(address)
        here.setdefault(codelet.description.strip() if codelet else "", Counter())[Token(token)] += 1
    for opcode, name in enumerate(NAMES):
        assert here[name][Token.OP] == 1, name
        assert (here[name][Token.TAKEN] > 0) == (KIND[opcode] == Kind.CONDITIONAL), name
    plain = here["method entry point (kind = zerolocals)"]
    assert plain == {Token.ENTER: 1, Token.CLEAR: 1}
    assert here["method entry point (kind = zerolocals_synchronized)"] == plain
    assert here["exception handling"] == {Token.RETHROW: 1, Token.THROW: 1}
    continuations = {17: 0, 21: 2, 25: 3}[version]  # but for the return barrier
    assert here[""] == Counter({Token.UPCALL: 1, Token.UPRETURN: 1, Token.LOST: continuations})
    entries = Counter(found.argument[found.token == Token.ENTER].tolist())
    assert entries[Entry.NATIVE] == 2
    assert entries[Entry.INTRINSIC] > 10
    assert (np.diff(found.address.astype(np.int64)) >= 0).all()
    assert len(found.ends) == 3


def test_nothing_is_found_where_nothing_was_told() -> None:
    found = landmarks.find(CodeImage())
    assert not len(found.address)
    assert not found.complete
