"""Places of C1's code that waited to be patched, found when they had been."""

from __future__ import annotations

import numpy as np

from jvm.calls.patching_stubs import Place, places
from jvm.code.image import CodeImage
from jvm.code.version import FOREVER
from stages.follow.repair.known import WINDOW, Known
from stages.follow.repair.unpatched import Unpatched
from tests.flow.test_choice import call
from tests.jvm.exportwriter import Writer

CODE, BLOB, OTHER = 0x1000, 0x9000, 0xA000
AT, COPY, STUB = 0x08, 0x20, 0x33


def method(*, patched: bool = True, to: int = BLOB, short: bool = False, asks: bool = True) -> bytes:
    """A MOV r64, imm64 at AT, its copy, four bytes that ask for the initialising thread, the record, and CALL; JMP
    back."""
    mov = b"\x48\xbe" + bytes(range(1, 9))
    code = bytearray(b"\x90" * 0x40)
    code[AT : AT + len(mov)] = mov if patched else call(CODE + AT, CODE + STUB, 0xE9).ljust(len(mov), b"\x90")
    copy = COPY if asks else STUB - 5 - len(mov)
    code[copy : copy + len(mov)] = mov
    code[STUB - 5 : STUB] = bytes((0xB8, 0, STUB - copy, STUB - copy - len(mov), len(mov)))
    code[STUB : STUB + 5] = call(CODE + STUB, to)
    back = call(CODE + STUB + 5, CODE + AT, 0xE9)
    if short:
        back = b"\xeb" + (AT - (STUB + 7)).to_bytes(1, "little", signed=True)
    code[STUB + 5 : STUB + 5 + len(back)] = back
    return bytes(code)


def test_places() -> None:
    def found(code: bytes) -> list[Place]:
        return places(np.frombuffer(code, np.uint8), CODE, np.array([BLOB], np.uint64))

    assert found(method()) == [Place(AT, STUB, COPY, 10, True)]
    assert found(method(short=True)) == [Place(AT, STUB, COPY, 10, True)]
    assert found(method(patched=False)) == [Place(AT, STUB, COPY, 10, True)]
    assert found(method(asks=False)) == [
        Place(AT, STUB, STUB - 15, 10, False)
    ]  # from the copy on it runs into the CALL
    assert not found(method(to=OTHER))
    waits, done = (np.frombuffer(method(patched=patched), np.uint8) for patched in (False, True))
    (place,) = found(method(patched=False))
    assert place.patched(waits).tobytes() == done[AT:].tobytes()
    for size in range(len(method())):  # cut anywhere
        assert found(method()[:size]) in ([], [Place(AT, STUB, COPY, 10, True)])


def test_of_an_image() -> None:
    image = CodeImage()
    unpatched = Unpatched(image)

    def jumps() -> list[list[int]]:
        known = unpatched.add(Known.of(image.uncertain(0, FOREVER)))
        return [column.tolist() for column in (known.unpatched, known.unpatched_to, known.unpatched_until)]

    def waiting() -> dict[int, bytes]:
        known = unpatched.add(Known.of(image.uncertain(0, FOREVER)))
        return {at: row.tobytes() for at, row in zip(known.waiting.tolist(), known.waiting_content, strict=True)}

    assert jumps() == [[], [], []]
    image.feed(Writer(tsc=10).dynamic_code(BLOB, "load_klass_patching Runtime1 stub", bytes(32)).bytes())
    image.feed(Writer(tsc=10).dynamic_code(OTHER, "C1 Runtime load_mirror_patching_blob", bytes(32)).bytes())
    image.feed(Writer(tsc=900).nmethod_load(CODE, method(), 1, level=3).bytes())
    far = 0x2000
    image.feed(Writer(tsc=950).nmethod_load(far, method(to=OTHER + CODE - far), 2, level=4).bytes())  # by C2: none
    expected = [[CODE + AT] * 2, [CODE + COPY, CODE + STUB], [900, 900]]
    assert jumps() == expected
    image.feed(Writer(tsc=955).nmethod_load(0x5000, method(asks=False, to=BLOB + CODE - 0x5000), 4, level=3).bytes())
    expected = [[*expected[0], 0x5000 + AT], [*expected[1], 0x5000 + STUB], [*expected[2], 955]]
    assert jumps() == expected
    image.feed(Writer(tsc=956).nmethod_unload(0x5000, 4).bytes())
    image.forget_before(957)
    waits = 0x3000  # read as it was; not read: its target while a class is being initialised
    code = method(patched=False, to=BLOB + CODE - waits)
    image.feed(Writer(tsc=960).nmethod_load(waits, code, 3, level=2).bytes())
    expected = [[CODE + AT] * 2 + [waits + AT], [CODE + COPY, CODE + STUB, waits + COPY], [900, 900, 1 << 62]]
    assert jumps() == expected
    assert waiting() == {waits + AT: method()[AT : AT + WINDOW]}
    image.feed(Writer(tsc=1000).nmethod_unload(CODE, 1).nmethod_unload(waits, 3).bytes())
    image.forget_before(2000)
    assert jumps() == [[], [], []]
    assert not waiting()
