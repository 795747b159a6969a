"""The possible targets of Java calls, as columns of integers that kernels can look through. Times are TSC."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.calls.stubs import Stub

I64 = NDArray[np.int64]

OWN, ANY, VTABLE, ITABLE = range(4)
"""A callee's kind. The method that runs is that of the very class that the bytecode names; or it may be inherited; or
it is looked up in the table of virtual methods, or in that of an interface, so that any class may have it."""
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


NO_CALLS = CallTable(*(np.zeros(0, np.int64) for _ in CallTable._fields))
