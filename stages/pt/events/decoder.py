"""`next_event`: the event layer as one function (forms and rules: `events`)."""

from __future__ import annotations

from typing import Any

from jvm.kernels import inner, kernel
from stages.messages import U8
from stages.pt import packets as p
from stages.pt import timing
from stages.pt.errors import BAD_OPCODE, END, NO_PSB
from stages.pt.events import branches, interrupts, overflow, power, psb
from stages.pt.events import event as e
from stages.pt.events.event import EVENT, LAST, MORE
from stages.pt.packets import Int


@inner
def _branch(st: Any, ev: Any, kind: Int) -> Any:
    if kind <= p.TNT_64:
        return branches.tnt(st, ev)
    if kind == p.TIP:
        return branches.tip(st, ev)
    if kind == p.TIP_PGE:
        return branches.tip_pge(st, ev)
    if kind == p.TIP_PGD:
        return branches.tip_pgd(st, ev)
    if kind == p.FUP:
        return branches.fup(st, ev)
    if kind == p.PIP:
        return branches.pip(st, ev)
    if kind == p.MODE_EXEC:
        return branches.mode_exec(st, ev)
    return branches.mode_tsx(st, ev)


@inner
def _rare(data: U8, st: Any, ev: Any, rates: Any, kind: Int) -> Any:
    if kind == p.OVF:
        return overflow.ovf(data, st, ev, rates)
    if kind == p.PSB:
        return psb.psb(data, st, ev, rates)
    if kind == p.PSBEND:
        return psb.psbend(st, ev)
    if kind == p.VMCS:
        return branches.vmcs(st, ev)
    if kind == p.STOP:
        return power.plain(st, ev, e.STOPPED)
    if kind == p.MNT:
        return power.plain(st, ev, e.MNT)
    if kind == p.PTW:
        return power.ptwrite(st, ev)
    if kind == p.EXSTOP:
        return power.exstop(st, ev)
    if kind == p.MWAIT:
        return power.mwait(st, ev)
    if kind == p.PWRE:
        return power.pwre(st, ev)
    if kind == p.PWRX:
        return power.pwrx(st, ev)
    if kind == p.CFE:
        return interrupts.cfe(st, ev)
    if kind == p.EVD:
        return interrupts.evd(st, ev)
    if kind == p.TRIG:
        return power.trig(st, ev)
    if kind == p.BEP:
        return power.block_end(st, ev)
    if kind in (p.BBP, p.BIP, p.INVALID):
        return MORE
    return BAD_OPCODE


@kernel
def next_event(data: U8, st: Any, ev: Any, rates: Any) -> Any:
    """The next event into `ev` → 0, or an error < 0 (END: no more packets), which comes again if asked again.

    `data` uint8[:] a whole trace; `st` a STATE_DTYPE record that `sync` has placed, `ev` an EVENT_DTYPE record,
    `rates` a RATES_DTYPE record. The event's place in the trace is st["at"] − st["size"] afterwards.
    """
    while True:
        kind = st["kind"]
        if p.TNT_8 <= kind <= p.MODE_TSX:
            status = _branch(st, ev, kind)
        elif p.CBR <= kind <= p.CYC:
            status = timing.apply(st["clock"], kind, st["payload"], st["sub"], 0, rates)
            if status == 0:
                status = MORE
            if kind == p.CBR and status == MORE:
                status = power.plain(st, ev, e.CBR)
        elif kind < 0:
            return st["error"]
        else:
            status = _rare(data, st, ev, rates, kind)
            if status == MORE and kind == p.PSB:
                continue  # with the PSBEND or OVF that ended it
        if status <= EVENT:
            return status
        e.fetch(data, st)
        if status == LAST:
            return EVENT
        st["bound"] = 0


@kernel
def sync(data: U8, st: Any, ev: Any, rates: Any, here: Int) -> Any:
    """Go on to the next PSB (`here`: back to the last one) and read its PSB+ → 0, or an error < 0 (END: none)."""
    at = st["sync"]
    if not here:
        after = st["at"] + (p.PSB_SIZE if st["at"] == at else 0)
        at = p.find_psb(data, max(after - p.PSB_SIZE + 1, 0), data.size)
        if at < 0:
            st["at"] = data.size
            return END
    e.reset(st)
    e.reset_clock(st["clock"])
    st["context"] = e.start_context(rates["errata"])
    st["at"] = at
    st["sync"] = at
    st["error"] = 0
    if e.advance(data, st) < 0:
        return st["error"]
    if st["kind"] != p.PSB:
        return NO_PSB
    return min(psb.psb(data, st, ev, rates), EVENT)
