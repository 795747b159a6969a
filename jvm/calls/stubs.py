"""Which of the JVM's stubs Java calls lead to, by the names that JDK 17 to 25 give them (sharedRuntime.cpp,
stubDeclarations.hpp; icBuffer.cpp, vtableStubs.cpp)."""

from __future__ import annotations

from enum import StrEnum

from jvm.code.sites import stub_label
from jvm.code.version import Kind, Version


class Stub(StrEnum):
    RESOLVE_STATIC = "resolve_static_call"
    RESOLVE_OPT_VIRTUAL = "resolve_opt_virtual_call"
    RESOLVE_VIRTUAL = "resolve_virtual_call"
    IC_MISS = "ic_miss"
    WRONG_METHOD = "wrong_method"
    WRONG_METHOD_ABSTRACT = "wrong_method_abstract"
    ADAPTER = "I2C/C2I adapters"
    INLINE_CACHE = "InlineCacheBuffer"
    VTABLE = "vtable stub"
    ITABLE = "itable stub"


RESOLVERS = (
    Stub.RESOLVE_STATIC, Stub.RESOLVE_OPT_VIRTUAL, Stub.RESOLVE_VIRTUAL, Stub.IC_MISS, Stub.WRONG_METHOD,
    Stub.WRONG_METHOD_ABSTRACT,
)  # fmt: skip
"""These find out where a call is to go, change it, and jump there."""

_LABELS = {
    stub_label(form.format(stub.value)): stub
    for stub in Stub
    for form in ("{}", *(("{}_stub", "Shared Runtime {}_blob") if stub in RESOLVERS else ()))
}

_PATCHING = {
    stub_label(form.format(what))
    for what in ("access_field", "load_klass", "load_mirror", "load_appendix")
    for form in ("{}_patching Runtime1 stub", "C1 Runtime {}_patching_blob")
}


def is_patching(version: Version) -> bool:
    """Whether it is one of C1's stubs that find out the final code of a place and put it there (Runtime1)."""
    return version.name in _PATCHING


def stub_of(version: Version) -> Stub | None:
    """None: another, or no stub."""
    return None if version.kind == Kind.NMETHOD else _LABELS.get(version.name)
