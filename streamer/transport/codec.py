"""Wire form of the messages in `stages.messages`: a msgpack header, then one raw frame for each bulk field.

    frame 0   msgpack [VERSION, SCHEMA, type, sender, number, [field, …]]
    frame 1…  the bytes of every `bytes` or `ndarray` field, depth first in field order

Several messages of one sender may travel together: the frames of each behind those of the one before.

In the header a bulk array leaves [dtype name, shape], a bulk `bytes` its length; everything else is itself (a
NamedTuple, tuple or nested dataclass as an array, an IntEnum as its number). The first field of every keyed
message is its key. How to write and read a class follows from its annotations, worked out once per class.

SCHEMA is a checksum over all classes and field types: two builds that disagree about a message refuse each other
with one clear error instead of misreading fields.

A received message is not trusted: all sizes, counts, types and dtypes are checked against the class; any mismatch
raises `CodecError` and nothing else. Received arrays are read-only views of the frames, without a copy.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgpack
import numpy as np

from stages import messages
from streamer.transport.socket import Buffer

VERSION = 1
MAX_HEADER = 8 << 20  # bytes; msgpack objects need up to 60 times their wire size
MAX_FRAME = 256 << 20
MAX_DIMENSIONS = 4

# dtypes that may stand on the wire, by their name there. A structured one is named by its field: the annotation
# NDArray[np.void] does not tell which it is, the field's metadata does.
DTYPES: dict[str, np.dtype[Any]] = {
    np.dtype(t).str: np.dtype(t) for t in ("u1", "<u2", "<u4", "<u8", "i1", "<i2", "<i4", "<i8", "<f4", "<f8")
}


class CodecError(ValueError):
    """The bytes are no message of ours, or the object is none that can be sent."""


class Envelope(NamedTuple):
    """A decoded message, its sender, and its number in that sender's stream (see `sequence`)."""

    message: Any
    sender: str
    number: int


Frames = list[Buffer]
Pack = Callable[[Any, Frames], Any]  # field value, frames to append to → header value
Unpack = Callable[[Any, Iterator[Buffer]], Any]  # header value, frames to take from → field value


class Shape(NamedTuple):
    """How one annotated type travels. `pack` is None where msgpack writes the value as it is; `text` is the type in
    words, for SCHEMA; `scalar` the type if it is a plain one."""

    pack: Pack | None
    unpack: Unpack
    text: str
    scalar: type | None = None


# ---- shapes, from annotations


def _scalar(kind: type) -> Shape:
    def unpack(value: Any, _: Iterator[Buffer]) -> Any:
        if type(value) is not kind:
            if kind is float and type(value) is int:  # a count given as a gauge
                return float(value)
            raise CodecError(f"expected {kind.__name__}, found {type(value).__name__}")
        return value

    return Shape(None, unpack, kind.__name__, kind)


def _enumeration(kind: type[IntEnum]) -> Shape:
    members = {int(m): m for m in kind}

    def unpack(value: Any, _: Iterator[Buffer]) -> Any:
        if type(value) is not int or value not in members:
            raise CodecError(f"{value!r:.40} is no {kind.__name__}")
        return members[value]

    return Shape(None, unpack, f"{kind.__name__}{sorted(members)}")


def _record(build: Callable[..., Any], name: str, shapes: Sequence[Shape], fields: Sequence[str] | None) -> Shape:
    """A fixed number of parts: dataclass (`fields` named), NamedTuple or tuple (`fields` None)."""
    size = len(shapes)
    names = fields or [""] * size
    text = f"{name}({', '.join(f'{f} {s.text}' for f, s in zip(names, shapes, strict=True))})"
    # Most parts are plain scalars: only the others cost a call.
    packs = [(i, s.pack) for i, s in enumerate(shapes) if s.pack is not None]
    unpacks = [(i, s.scalar, s.unpack) for i, s in enumerate(shapes)]
    values = attrgetter(*fields) if fields is not None and size > 1 else None

    def pack(value: Any, frames: Frames) -> Any:
        if values is not None:
            parts = list(values(value))
        elif fields is not None:
            parts = [getattr(value, f) for f in fields]
        else:
            parts = list(value)
        for i, pack_part in packs:
            parts[i] = pack_part(parts[i], frames)
        return parts

    def unpack(value: Any, frames: Iterator[Buffer]) -> Any:
        if type(value) is not list or len(value) != size:
            raise CodecError(f"{name} wants {size} parts")
        for i, scalar, unpack_part in unpacks:
            if type(value[i]) is not scalar:
                value[i] = unpack_part(value[i], frames)
        return build(*value)

    return Shape(None if fields is None and not packs else pack, unpack, text)


def _sequence(item: Shape) -> Shape:
    """tuple[X, ...]."""
    pack_item, unpack_item = item.pack, item.unpack

    def pack(value: Any, frames: Frames) -> Any:
        assert pack_item is not None
        return [pack_item(part, frames) for part in value]

    def unpack(value: Any, frames: Iterator[Buffer]) -> Any:
        if type(value) is not list:
            raise CodecError("expected a sequence")
        return tuple([unpack_item(part, frames) for part in value])

    return Shape(None if pack_item is None else pack, unpack, f"{item.text}…")


def _optional(item: Shape) -> Shape:
    pack_item, unpack_item = item.pack, item.unpack

    def pack(value: Any, frames: Frames) -> Any:
        assert pack_item is not None
        return None if value is None else pack_item(value, frames)

    def unpack(value: Any, frames: Iterator[Buffer]) -> Any:
        return None if value is None else unpack_item(value, frames)

    return Shape(None if pack_item is None else pack, unpack, f"{item.text}?")


def _take(frames: Iterator[Buffer], size: int) -> Buffer:
    frame = next(frames, None)
    if frame is None:
        raise CodecError("a frame is missing")
    if len(frame) != size:
        raise CodecError(f"frame of {len(frame)} bytes, {size} announced")
    return frame


def _bulk_bytes() -> Shape:
    def pack(value: Any, frames: Frames) -> Any:
        if not isinstance(value, bytes):
            raise CodecError(f"expected bytes, found {type(value).__name__}")
        frames.append(value)
        return len(value)

    def unpack(value: Any, frames: Iterator[Buffer]) -> Any:
        if type(value) is not int or value < 0:
            raise CodecError("no length of bytes")
        return bytes(_take(frames, value))

    return Shape(pack, unpack, "bytes")


def _array(name: str, dtype: np.dtype[Any]) -> Shape:
    flat = dtype == np.uint8  # the bulk of all traffic: nothing to convert

    def pack(value: Any, frames: Frames) -> Any:
        if type(value) is np.ndarray and value.dtype is dtype and value.ndim == 1 and value.flags.c_contiguous and flat:
            frames.append(value.data if value.size else b"")
            return [name, value.shape]
        if not isinstance(value, np.ndarray) or value.dtype != dtype:
            raise CodecError(f"expected an array of {dtype}, found {getattr(value, 'dtype', type(value))}")
        if value.ndim > MAX_DIMENSIONS:
            raise CodecError(f"array of {value.ndim} dimensions")
        octets = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        frames.append(octets.data if octets.size else b"")
        return [name, value.shape]

    def unpack(value: Any, frames: Iterator[Buffer]) -> Any:
        if type(value) is not list or len(value) != 2 or type(value[1]) is not list:
            raise CodecError("no description of an array")
        if value[0] != name:
            raise CodecError(f"expected an array of {name}, found {value[0]!r:.40}")
        shape = value[1]
        if len(shape) > MAX_DIMENSIONS or any(type(n) is not int or not 0 <= n <= MAX_FRAME for n in shape):
            raise CodecError("bad array shape")
        size = dtype.itemsize
        for n in shape:
            size *= n
        frame = _take(frames, size)
        array = np.frombuffer(frame, dtype) if size else np.empty(0, dtype)  # frombuffer refuses an empty buffer
        if not array.flags.aligned:
            array = array.copy()
        if array.flags.writeable:
            array.flags.writeable = False
        return array if len(shape) == 1 else array.reshape(shape)

    return Shape(pack, unpack, f"array of {dtype.descr}")


def _shape(hint: Any, where: tuple[str, str], dtype: np.dtype[Any] | None = None) -> Shape:
    """`where` is (class, field); `dtype` that of a structured array."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in (int, float, str, bool):
        return _scalar(hint)
    if hint is bytes:
        return _bulk_bytes()
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return _enumeration(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _class(hint)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        shapes = [_shape(hints[f], (hint.__name__, f)) for f in hint._fields]
        return _record(hint, hint.__name__, shapes, None)
    if origin is tuple and len(args) == 2 and args[1] is ...:
        return _sequence(_shape(args[0], where))
    if origin is tuple:
        return _record(lambda *parts: parts, "tuple", [_shape(a, where) for a in args], None)
    if origin in (Union, UnionType) and len(args) == 2 and NoneType in args:
        return _optional(_shape(next(a for a in args if a is not NoneType), where))
    if origin is np.ndarray:
        scalar = get_args(args[1])[0]
        if dtype is not None:
            return _array(".".join(where), dtype)
        if (name := np.dtype(scalar).str) in DTYPES:
            return _array(name, DTYPES[name])
    raise TypeError(f"{where[0]}.{where[1]}: the codec has no wire form for {hint}")


def _class(kind: type) -> Shape:
    hints = get_type_hints(kind)
    fields = dataclasses.fields(kind)
    names = [f.name for f in fields]
    shapes = [_shape(hints[f.name], (kind.__name__, f.name), f.metadata.get("dtype")) for f in fields]
    return _record(kind, kind.__name__, shapes, names)


MESSAGES: dict[str, type] = {
    name: kind for name, kind in vars(messages).items() if dataclasses.is_dataclass(kind) and isinstance(kind, type)
}
_SHAPES = {name: _class(kind) for name, kind in MESSAGES.items()}
SCHEMA = zlib.crc32("\n".join(_SHAPES[name].text for name in sorted(_SHAPES)).encode())


# ---- messages


def _plain(value: Any) -> Any:
    """numpy scalars, which msgpack does not know."""
    if isinstance(value, np.generic):
        return value.item()
    raise CodecError(f"{type(value).__name__} cannot be sent")


def encode(message: Any, sender: str = "", number: int = 0) -> Frames:
    """The frames of `message`. Large arrays are not copied: they must not change until they are sent.
    Raises `CodecError` if a field has not the annotated type or is too large."""
    name = type(message).__name__
    if MESSAGES.get(name) is not type(message):
        raise CodecError(f"{name} is no message")
    frames: Frames = [b""]
    pack = _SHAPES[name].pack
    assert pack is not None  # dataclasses always have one
    try:
        fields = pack(message, frames)
        header = msgpack.packb(
            [VERSION, SCHEMA, name, sender, number, fields], default=_plain, unicode_errors="surrogatepass"
        )
    except CodecError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise CodecError(f"{name} cannot be encoded: {error}") from error
    if len(header) > MAX_HEADER or max(map(len, frames)) > MAX_FRAME:
        raise CodecError(f"{name} is too large")
    frames[0] = header
    return frames


def decode(frames: Sequence[Buffer]) -> Envelope:
    """The message in `frames`. Raises `CodecError`, and only that, for frames that `encode` would not have made."""
    rest = _checked(frames)
    envelope = _decoded(next(rest), rest)
    if next(rest, None) is not None:
        raise CodecError(f"{type(envelope.message).__name__}: more frames than bulk fields")
    return envelope


def decode_all(frames: Sequence[Buffer]) -> list[Envelope]:
    """The messages in `frames`, those of each behind those of the one before. Raises as `decode`."""
    rest = _checked(frames)
    return [_decoded(first, rest) for first in rest]


def _checked(frames: Sequence[Buffer]) -> Iterator[Buffer]:
    if not frames or max(map(len, frames)) > MAX_FRAME:
        raise CodecError("no header, or a frame over the limit")
    return iter(frames)


def _decoded(first: Buffer, rest: Iterator[Buffer]) -> Envelope:
    """The message with header `first`; the other frames of it are taken from `rest`."""
    if len(first) > MAX_HEADER:
        raise CodecError("no header, or a frame over the limit")
    try:
        header = msgpack.unpackb(
            first, strict_map_key=True, max_ext_len=0, max_map_len=0, unicode_errors="surrogatepass"
        )
    except Exception as error:  # msgpack documents ValueError, but raises more kinds than that
        raise CodecError(f"the header is no msgpack: {type(error).__name__}") from None
    if type(header) is not list or not header:
        raise CodecError("the header is no array")
    if header[0] != VERSION or type(header[0]) is not int:
        raise CodecError(f"wire version {header[0]!r:.20}, this is version {VERSION}")
    if len(header) != 6:
        raise CodecError("the header has not its six parts")
    _, schema, name, sender, number, fields = header
    if schema != SCHEMA:
        raise CodecError("the sender was built with other message definitions")
    if type(name) is not str or name not in _SHAPES:
        raise CodecError(f"unknown message type {name!r:.40}")
    if type(sender) is not str or type(number) is not int:
        raise CodecError("bad sender or number")
    try:
        message = _SHAPES[name].unpack(fields, rest)
    except CodecError as error:
        raise CodecError(f"{name}: {error}") from None
    return Envelope(message, sender, number)
