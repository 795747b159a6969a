"""Through the code without a packet: as far as the instructions say where they go.

`walk` follows from fl["ip"] on and appends every instruction's address to the output, until its goal, or the first
instruction that needs a packet. It is the only place where instructions are passed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.kernels import inner
from stages.messages import U8
from stages.pt.errors import EMPTY_STACK, ENDLESS, TOO_FAR
from stages.pt.exact import instructions as i
from stages.pt.packets import Int
from stages.pt.return_stack import ONE, SLOTS, above, popped, pushed

# The result of a step; errors are negative. A walk: goal reached, a packet is needed, …
OK, REACHED, NEEDS_TRACE, BLOCK_ENDS, MISSING, FULL = range(6)
# … an event is to be told here; ask again; the target stands in a TIP behind the TNT in use; from the last PSB anew
PENDING, AGAIN, WANTS_TIP, WANTS_PSB = range(6, 10)
DROPPED, NO_EVENT_YET = 1, 2  # fl["dropped"]: the event held is used up; or there was none yet

_BLOCK_LIMIT = 65535

FLOW_DTYPE = np.dtype(
    [
        ("ip", "<u8"),  # the next instruction
        ("mode", "<i8"),
        ("enabled", "<i8"),
        ("speculative", "<i8"),
        ("tsc", "<u8"),  # time of the last event
        ("has_tsc", "<i8"),
        ("error", "<i8"),  # why there is no next event
        ("dropped", "<i8"),  # the event held is void: the next is to be fetched
        ("phase", "<i8"),
        ("last", "<i8"),  # index of the last instruction passed, −1: none
        ("postponed", "<i8"),  # index of an instruction that more events may bind to, −1: none
        ("bound", "<i8"),  # event kinds that have bound to it, as a mask
        ("anchored", "<i8"),  # TRIG: `icnt` instructions have been passed since an address stood in the trace
        ("icnt", "<i8"),
        ("steps", "<i8"),  # since a packet was last needed
        ("known", "<i8"),  # instructions in the table
        ("missing", "<u8"),  # the address that must be decoded before going on
        ("block_ip", "<u8"),  # where this block begins
        ("block_last", "<i8"),  # its last instruction, −1: none yet
        ("block_size", "<i8"),
        ("block_speculative", "<i8"),
        ("blocks", "<i8"),  # so far
        ("out", "<i8"),  # addresses in the output
        ("events", "<i8"),  # events in the output
        ("resync_at", "<i8"),  # where the last resynchronisation was tried, −1: none
        ("resync_waiting", "<i8"),
        ("ticks", "<i8"),  # options
        ("end_on_call", "<i8"),
        ("end_on_jump", "<i8"),
        ("resync", "<i8"),
        ("tell_blocks", "<i8"),
        ("top", "<i8"),  # of the return stack; `depth` entries below it count
        ("depth", "<i8"),
        ("stack", "<u8", (SLOTS,)),
    ]
)


@inner
def push(fl: Any, ip: Int) -> None:
    fl["top"] = above(fl["top"], ONE)
    fl["stack"][fl["top"]] = ip
    fl["depth"] = pushed(fl["depth"], ONE)


@inner
def pop(fl: Any) -> Any:
    """Drop the youngest return address → 0 and it, or EMPTY_STACK."""
    if fl["depth"] == 0:
        return EMPTY_STACK, np.uint64(0)
    ip = fl["stack"][fl["top"]]
    fl["top"] = above(fl["top"], -ONE)
    fl["depth"] = popped(fl["depth"], ONE)
    return 0, ip


@inner
def walk(fl: Any, table: Any, slots: Any, out: Any, speculative: U8, goal: Int, to_ip: Int, to_ip_set: Int) -> Any:
    """Follow the code to the first instruction with a flag of `goal`, or (`to_ip_set`) up to address `to_ip`.

    → REACHED: at the goal; for a flag the instruction is in the output and fl["ip"] still its address;
    NEEDS_TRACE: the last instruction needs a packet (in the output, fl["ip"] its address);
    BLOCK_ENDS: the block is full, or ends by option; MISSING: fl["missing"] must be decoded; FULL: no room in `out`;
    an error otherwise. All but the errors can be gone on from.
    """
    ip = fl["ip"]
    mode = fl["mode"]
    index = np.int64(-1)
    n = fl["out"]
    first = n
    size = fl["block_size"]
    # More steps than instructions are known: one was passed twice, with nothing in between to change the way.
    steps_left = fl["known"] - fl["steps"]
    status = 0
    while True:
        if to_ip_set and ip == to_ip:
            status = REACHED
            break
        if index < 0:
            index = i.lookup(table, slots, ip, mode)
            if index < 0:
                fl["missing"] = ip
                status = MISSING
                break
        here = table[index]
        kind = here["kind"]
        if kind >= i.UNMAPPED:
            status = i.why_not(kind)
            break
        if size + n - first >= _BLOCK_LIMIT:
            status = BLOCK_ENDS
            break
        if n >= out.size:
            status = FULL
            break
        if n - first > steps_left:
            status = ENDLESS
            break
        out[n] = ip
        speculative[n] = fl["block_speculative"]
        n += 1
        fl["last"] = index
        flags = here["flags"]
        if flags & i.PUSHES:
            push(fl, ip + np.uint64(here["size"]))
        if flags & goal:
            status = REACHED
            break
        if kind == i.PLAIN:
            ip += np.uint64(here["size"])
            follows = np.int64(here["next"])
            if follows < 0:
                follows = i.lookup(table, slots, ip, mode)
                table[index]["next"] = follows
        elif kind >= i.FIRST_THAT_NEEDS_TRACE:
            status = NEEDS_TRACE
            break
        else:
            ip = here["target"]
            follows = np.int64(here["taken"])
            if follows < 0:
                follows = i.lookup(table, slots, ip, mode)
                table[index]["taken"] = follows
            if (kind == i.CALL and fl["end_on_call"]) or (kind == i.JUMP and fl["end_on_jump"]):
                status = REACHED if to_ip_set and ip == to_ip else BLOCK_ENDS
                break
        index = follows
    passed = n - first
    fl["ip"] = ip
    fl["out"] = n
    fl["steps"] += passed
    if passed:
        fl["block_size"] = size + passed
        fl["block_last"] = fl["last"]
        if fl["anchored"]:
            fl["icnt"] += passed
            if fl["icnt"] > 0xFFFFFFFF:
                status = TOO_FAR
    return status


@inner
def follows_statically(table: Any, index: Int) -> Any:
    """Address after instruction `index` where no packet is needed → (whether it is so, the address)."""
    here = table[index]
    if here["kind"] == i.PLAIN:
        return True, here["ip"] + np.uint64(here["size"])
    return here["kind"] in (i.JUMP, i.CALL), here["target"]


@inner
def after(table: Any, index: Int) -> Any:
    """Address after instruction `index`, branches taken for direct ones: where an error is put."""
    here = table[index]
    if here["kind"] in (i.JUMP, i.CALL, i.CONDITIONAL):
        return here["target"]
    return here["ip"] + np.uint64(here["size"])
