"""When nmethods were made not entrant."""

from __future__ import annotations

from jvm.code.image import CodeImage
from jvm.code.version import FOREVER
from tests.jvm.exportwriter import Writer

A, B, C = 0x1000, 0x2000, 0x3000
CODE = b"\x90" * 64
JUMP = b"\xe9\x00\x01\x00\x00"


def load(
    tsc: int, at: int, method: int = 1, code: bytes = CODE, osr_entry: int = 0, flags: int = 0, level: int = 4
) -> bytes:
    w = Writer(tsc=tsc)
    return w.nmethod_load(
        at, code, method, entry=at, verified_entry=at + 0x20, osr_entry=osr_entry, flags=flags, level=level
    ).bytes()  # fmt: skip


def image(*records: bytes) -> CodeImage:
    image = CodeImage()
    for record in records:
        image.feed(record)
    return image


def since(image: CodeImage) -> dict[int, int]:
    return {v.start: v.not_entrant for v in image.versions()}


def test_another_version_of_the_method_ends_the_one_before() -> None:
    assert since(image(load(100, A), load(200, B), load(300, C))) == {A: 200, B: 300, C: FOREVER}
    assert since(image(load(100, A), load(200, B, method=2))) == {A: FOREVER, B: FOREVER}


def test_code_entered_in_the_middle_ends_nothing() -> None:
    assert since(image(load(100, A), load(200, B, osr_entry=B + 0x30))) == {A: FOREVER, B: FOREVER}


def test_wrappers_of_one_method_stand_side_by_side() -> None:
    """MethodHandle.invokeBasic has one a signature."""
    assert since(image(load(100, A, level=0), load(200, B, level=0))) == {A: FOREVER, B: FOREVER}
    assert since(image(load(100, A), load(200, B, level=0))) == {A: FOREVER, B: FOREVER}


def test_a_jump_at_the_verified_entry() -> None:
    jump = CODE[:0x20] + JUMP + CODE[0x25:]
    assert since(image(load(100, A, code=jump))) == {A: 100}
    patch = Writer(tsc=300).code_patch(A + 0x1E, 200, 300, b"\x90\x90" + JUMP).bytes()
    assert since(image(load(100, A), patch)) == {A: 300}
    elsewhere = Writer(tsc=300).code_patch(A + 0x21, 200, 300, JUMP).bytes()
    assert since(image(load(100, A), elsewhere)) == {A: FOREVER}
