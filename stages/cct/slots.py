"""Hash tables of rows, by open addressing: in which slot the row of a key is.

A slot is a tag of the key's hash and the row, 0: empty. Most rows of another key that lie on the way are told apart by
the tag: a look at a row costs a miss of the caches, and most of what is looked for is new. A thread that comes to new
stacks makes activations one behind the other, and the calls and steps that are looked for next begin with these: so the
first slots that are tried for a key lie where its first column says, beside those of rows of the same time; then some
in one of the lines behind; and only when those are taken is it anywhere, by its hash, and from there on in leaps, for
such lines may all be full. (Where contexts cost most, sunflow on four threads, a ninth of the steps are: of some
activations there are hundreds.)
"""

from __future__ import annotations

from jvm.kernels import inner
from stages.cct.tables import BEHIND, ROW_BITS
from stages.pointers import product

_ROWS, _TAGS = 1 << ROW_BITS, 1 << 31 - ROW_BITS
_NEAR, _LINE = 4, 16
"""So many slots are tried side by side, of so many in a cache line."""
_BEHIND = 32
"""In one of so many lines behind the first they are tried next."""


@inner
def mixed(a, b, c):  # type: ignore[no-untyped-def]
    """A hash of three numbers: its low bits, and those from 24 on, are for the caller to cut out."""
    h = product(a ^ product(b, -4417276706812531889), -7046029254386353131)
    h = product(h ^ (h >> 29) ^ c, -7723592293110705685)
    return (h >> 40) ^ (h >> 20)


@inner
def tag_of(h):  # type: ignore[no-untyped-def]
    """Of a hash: in the place in which it stands in a slot."""
    return ((h >> 24) & (_TAGS - 1)) << ROW_BITS


@inner
def differs(slot, tag):  # type: ignore[no-untyped-def]
    """Whether what is in a slot is not of a key with that tag."""
    return (slot ^ tag) >= _ROWS


@inner
def row_in(slot):  # type: ignore[no-untyped-def]
    return slot & (_ROWS - 1)


@inner
def first_slot(first, h, mask):  # type: ignore[no-untyped-def]
    """The slot at which to begin for a key that begins with `first` and has the hash `h`."""
    return ((first >> 1) * _LINE | h & (_LINE - _NEAR)) & mask


@inner
def next_slot(i, first, h, mask, tried):  # type: ignore[no-untyped-def]
    """The slot that is tried behind `i`, when so many have been."""
    if tried == _NEAR:
        return (((first >> 1) + 1 + (h >> 4 & (_BEHIND - 1))) * _LINE | h & (_LINE - _NEAR)) & mask
    if tried < 2 * _NEAR:
        return i + 1
    return (h if tried == 2 * _NEAR else i + (h >> 22 | 1)) & mask


@inner
def spread(rows, width, count, keys, slots, mask):  # type: ignore[no-untyped-def]
    """Rows [1, count) into twice as many slots of their hash table; the first `keys` columns are their key: three of
    them, or a state and one more. The new mask. There is memory for twice as many slots as rows."""
    mask = 2 * mask + 1
    for i in range(mask + 1):
        slots[i] = 0
    for k in range(1, count):
        row = width * k
        h = mixed(rows[row], rows[row + 1], rows[row + 2] if keys == 3 else 0)
        first = rows[row] if keys == 3 else rows[row] >> BEHIND
        i, tried = first_slot(first, h, mask), 1
        while slots[i] != 0:
            i = next_slot(i, first, h, mask, tried)
            tried += 1
        slots[i] = tag_of(h) | k
    return mask
