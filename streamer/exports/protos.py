"""Protobuf messages from tables of their fields, so that neither generated code nor a compiler is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

Fields = Mapping[str, tuple[int, str]]
"""Name → (number, type): a scalar's name or a message's of the same table; `[]` behind it: repeated; `?`: optional,
its presence told apart."""

_SCALARS = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in ("string", "bytes", "bool", "int32", "int64", "uint64", "fixed64", "double")
}


def messages(package: str, table: Mapping[str, Fields]) -> dict[str, type[Any]]:
    """A class for each message (proto3)."""
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in table.items():
        made = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            base = kind.rstrip("[]?")
            label = FieldDescriptorProto.LABEL_REPEATED if kind.endswith("[]") else FieldDescriptorProto.LABEL_OPTIONAL
            one = made.field.add(name=field, number=number, label=label)
            if base in _SCALARS:
                one.type = _SCALARS[base]
            else:
                one.type, one.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{package}.{base}"
            if kind.endswith("?"):
                one.proto3_optional, one.oneof_index = True, len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{field}")
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in table}
