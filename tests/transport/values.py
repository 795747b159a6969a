"""hypothesis strategies for every message, from the same annotations the codec works from."""

from __future__ import annotations

import dataclasses
from enum import IntEnum
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from hypothesis import strategies as st

from streamer.transport.codec import MESSAGES

INTS = st.integers(-(2**63), 2**64 - 1)


def of(hint: Any, dtype: np.dtype[Any] | None = None) -> st.SearchStrategy[Any]:
    args = get_args(hint)
    if hint is int:
        return INTS
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is str:
        return st.text(max_size=20)
    if hint is bool:
        return st.booleans()
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return st.sampled_from(list(hint))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        fields = dataclasses.fields(hint)
        return st.builds(hint, *[of(hints[f.name], f.metadata.get("dtype")) for f in fields])
    if isinstance(hint, type) and issubclass(hint, tuple):
        hints = get_type_hints(hint)
        return st.builds(hint, *map(of, hints.values()))
    if get_origin(hint) is tuple and args[1] is ...:
        return st.lists(of(args[0]), max_size=4).map(tuple)
    if get_origin(hint) is tuple:
        return st.tuples(*[of(a) for a in args])
    if get_origin(hint) is np.ndarray:
        scalar = get_args(args[1])[0]
        dtype = np.dtype(scalar) if dtype is None else dtype
        return st.binary(max_size=8).flatmap(
            lambda seed: st.integers(0, 5).map(
                lambda n: np.resize(np.frombuffer(seed or b"\0", np.uint8), n * dtype.itemsize).view(dtype)
            )
        )
    raise TypeError(hint)


ANY_MESSAGE = st.one_of([of(kind) for kind in MESSAGES.values()])
KINDS = sorted(MESSAGES)


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down (a tuple is not a NamedTuple, an int is not an IntEnum)."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return bool(a == b)
