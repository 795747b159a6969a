"""The possible targets of Java calls, as columns of integers that kernels can look through. Times are TSC."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.calls.stubs import Stub
from jvm.kernels import inner
from stages.pointers import least_at

I64 = NDArray[np.int64]

OWN, ANY, VTABLE, ITABLE, HANDLE = range(5)
"""A callee's kind. The method that runs is that of the very class that the bytecode names; or it may be inherited; or
it is looked up in the table of virtual methods, or in that of an interface, so that any class may have it; or it is
behind a method handle, and has another name."""
TABLES = {Stub.VTABLE: VTABLE, Stub.ITABLE: ITABLE}


class CallTable(NamedTuple):
    # calls, ascending
    site: I64
    stub: I64  # its own, 0: none known
    checked: I64  # (0 or 1) at the receiver
    callee: I64  # −1: not known
    # JMPs of calls' own stubs, ascending
    jump: I64
    jump_callee: I64
    # callees
    name: I64  # a number for name and descriptor
    owner: I64  # a number for the class
    kind: I64  # see above
    arguments: I64  # a number for the fingerprint of their types
    declared: I64  # a number for the class in which the method stands that is named; −1: not known
    # compiled methods, ascending by name
    entry_name: I64
    holder: I64  # a class
    verified: I64
    unverified: I64  # the entry that checks the receiver, 0: none
    since: I64  # it was told; 0: it was there before
    until: I64
    # adapters that calls of others came to, ascending by 2 · arguments + checked
    adapter_key: I64
    adapter: I64
    # stubs that look a method up in a table, the last made first
    table: I64
    table_kind: I64  # VTABLE, ITABLE
    table_made: I64  # 0: it was there before
    table_until: I64
    # those of them that other calls led to: of the same callee, which has one and no other, ascending by callee;
    led_callee: I64
    led: I64
    # of the same name, ascending by it
    namesake: I64
    namesake_led: I64
    # and any, ascending: a class that a callee is named of
    claimed: I64
    claim: I64


@inner
def names_other(calls, site, target, tsc, slack):  # type: ignore[no-untyped-def]
    """Whether the call at `site` names another method than that whose entry is at `target` at `tsc`, `slack` ticks
    earlier or later. A call leads to methods of one name and descriptor (JVMS 5.4.6), a constructor's to one of the
    class that is named; but that of a method handle. False, where one of the two is not known. `calls`: `CallTable` as
    `Column`s."""
    k = least_at(calls.site.at, calls.site.n, site)
    callee = calls.callee.at[k] if k < calls.site.n and calls.site.at[k] == site else np.int64(-1)
    if callee < 0 or calls.kind.at[callee] == HANDLE:
        return False
    name, other = calls.name.at[callee], False
    holder = calls.owner.at[callee] if calls.kind.at[callee] == OWN else np.int64(-1)
    for row in range(calls.verified.n):
        if calls.verified.at[row] != target and calls.unverified.at[row] != target:
            continue
        if calls.since.at[row] - slack <= tsc < calls.until.at[row] + slack:
            if calls.entry_name.at[row] == name and (holder < 0 or calls.holder.at[row] == holder):
                return False
            other = True
    return other


NO_CALLS = CallTable(*(np.zeros(0, np.int64) for _ in CallTable._fields))
