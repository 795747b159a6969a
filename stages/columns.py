"""Many arrays as the kernels see them: one pointer, to a table of where each begins.

A tuple of arrays or of pointers (`stages.pointers`) goes to each function of a kernel whole: where there are sixty of
them and many functions, the calls cost more than the work, and most of the time to compile goes into handing them on.
Here `g = pointers(where)` is one pointer, and `g.nodes.kind[node]` reads where that column begins when it is used. A
table does not change while a kernel runs, so LLVM reads each of its words once a function.

An array of several dimensions is seen as one of one. Bounds and lifetimes are up to the caller, as with
`stages.pointers`. With NUMBA_DISABLE_JIT=1 the arrays stand in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, from_dtype, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model
from numpy.typing import NDArray


def _pointer(item: Any) -> Any:
    return types.CPointer(from_dtype(np.dtype(item)))  # type: ignore[no-untyped-call]


class Table(types.Type):
    """Of a NamedTuple class whose fields are annotated as `NDArray[dtype]`, or with another such class."""

    def __init__(self, of: type) -> None:
        self.fields: dict[str, tuple[int, Any]] = {}  # place in the table, type
        self.words = 0
        for name, kind in get_type_hints(of).items():
            args = get_args(kind)  # of NDArray: the shape, dtype[…]
            column: Any = Table(kind) if not args else _pointer(get_args(args[1])[0])
            self.fields[name] = self.words, column
            self.words += column.words if isinstance(column, Table) else 1
        super().__init__(name=f"Table({of.__module__}.{of.__qualname__}: {self.fields})")


@register_model(Table)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, table: Table) -> None:
        super().__init__(manager, table, ir.IntType(64).as_pointer())  # type: ignore[no-untyped-call]


@infer_getattr
class _Fields(AttributeTemplate):
    key = Table

    def generic_resolve(self, table: Table, name: str) -> Any:  # type: ignore[override]
        return table.fields[name][1] if name in table.fields else None


@lower_getattr_generic(Table)  # type: ignore[no-untyped-call]
def _field(context: Any, builder: Any, table: Table, value: Any, name: str) -> Any:
    place, kind = table.fields[name]
    at = builder.gep(value, [ir.Constant(ir.IntType(64), place)])
    if isinstance(kind, Table):
        return at
    word = builder.load(at)
    word.set_metadata("invariant.load", builder.module.add_metadata([]))
    return builder.inttoptr(word, context.get_value_type(kind))


def _columns(arrays: Any) -> Iterator[NDArray[Any]]:
    for column in arrays:
        if isinstance(column, tuple):
            yield from _columns(column)
        else:
            yield column


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def table(arrays: Any) -> Any:
        if isinstance(arrays, tuple):
            return type(arrays)(*map(table, arrays))
        return arrays.reshape(-1)

    def pointers_to(of: type) -> Any:
        return lambda where: where

else:

    def table(arrays: Any) -> Any:
        """(n,) int64: for a kernel, where the arrays of a NamedTuple begin. They and this must live as long as it is
        used. Raises ValueError if one is not contiguous."""
        columns = list(_columns(arrays))
        if not all(column.flags.c_contiguous for column in columns):
            raise ValueError("a pointer needs a contiguous array")
        return np.array([column.ctypes.data for column in columns], np.int64)

    def pointers_to(of: type) -> Any:
        """A function for kernels: from the `table` of such a NamedTuple to its columns."""
        kind = Table(of)

        @intrinsic
        def pointers(typingctx, where):  # type: ignore[no-untyped-def]
            def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
                return context.make_array(signature.args[0])(context, builder, args[0]).data

            return kind(where), codegen

        return pointers
