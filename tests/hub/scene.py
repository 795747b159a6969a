"""A hub that has seen a program for a while, to test the page, the metrics and the table on."""

from __future__ import annotations

from dataclasses import replace

from stages.messages import Break, Clock, CodeKind, Contradiction
from streamer.config import WindowConfig
from streamer.hub.hub import Hub
from tests.hub.reports import HOST, PID, Time, account, report

BEFORE = {
    "org.apache.fop.fonts.GlyphTable.lookup": 420,
    "org.apache.fop.area.LineArea.addInline": 310,
    "java.util.HashMap.getNode": 160,
    "org.apache.fop.layoutmgr.Knuth$$Lambda$56.0x00007f123.apply": 60,
}
NOW = {
    "org.apache.fop.pdf.PDFStream.deflate": 500,
    "org.apache.fop.fonts.GlyphTable.lookup": 120,
    "java.util.HashMap.getNode": 160,
    "<script>alert(1)</script>[bold]\n.run": 40,
}
REST = {f"org.apache.fop.util.Helper.m{i}": 3 for i in range(30)}


CONTRADICTIONS = (
    Contradiction(
        Break.NO_RETURN, "org.apache.fop.area.LineArea.addInline (C2 #77)", 0x7F00, 0x2A, "a.B.c @ 7", 30, 900
    ),
    Contradiction(Break.TNT_AT_TIP, "[stub] I2C/C2I adapters", 0x8000, 5, "", 10, 0),
    Contradiction(Break.OFF_CODE, "[unknown code]", 0, 0x9999, "", 8, 100),
    Contradiction(Break.STUCK, "other", 0, 0, "", 2, 0),
)

OF_CAPTURE = {
    "steps": 7,
    "stages": {"backlog_bytes": 4096, "budget_cpus": 0.25, "spent_cpus": 0.2, "duty_share": 0.125},
    "input": {},
    "output": {"sent": 90, "sent_bytes": 9000, "dropped": 2, "refused": 1},
}
OF_A_WORKER = {
    "steps": 34,
    "stages": {"ready_held_bytes": 100, "follow_behind_seconds": 0.3, "flow_bytes": 1000.0, "flow_window_bytes": 750.0,
               "flow_misses": 8.0, "cct_nodes": 141, "code_versions": 823, "segment_threads": 7},
    "input": {"received": 85, "received_bytes": 8500},
    "output": {"sent": 30, "sent_bytes": 300, "dropped": 0, "refused": 0},
}  # fmt: skip


def scene(*, fidelity: str = "ip", clock: Time | None = None, seconds: int = 80, shed: int = 0) -> tuple[Hub, Time]:
    """`seconds` panes, the last ten after a shift; two components, three causes of loss; `shed` bytes in each pane."""
    clock = clock or Time()
    hub = Hub(WindowConfig(pane_seconds=1), fidelity=fidelity, now=clock, wall_ns=clock.ns)
    tsc_zero = clock.ns() - seconds * 10**9 - 10**8
    hub.introduce(HOST, PID, Clock(mult=1, shift=1, zero=0, wall_zero=tsc_zero))
    column = "hits" if fidelity == "ip" else "instructions"
    for pane in range(seconds):
        losses = {"desync": 12_000} if pane % 20 == 19 else {"overflow": 0} if pane % 7 == 0 else {}
        second(hub, pane, NOW if pane >= seconds - 10 else BEFORE, losses, column, shed)
    if fidelity == "flow":
        hub.feed(report(seconds - 1, {"java.util.HashMap.getNode": 1}, column="untold"))
    last = report(seconds - 1, {}, accounts=(account(seconds * 10**6, seconds * 10**6 + 900, code_missing=900),))
    last = replace(last, gauges=(("code_detail", 0.5),))
    hub.feed(replace(last, contradictions=CONTRADICTIONS if fidelity == "flow" else ()))
    lost = {"recording/ENOSPC": 5_000_000, "stderr/EPIPE": 700}
    hub.heartbeat({"component": "capture", "up": True, "restarts": 0, "cpu_seconds": 1.5, "lost_output": lost,
                   "faults": 3, "statistics": OF_CAPTURE})  # fmt: skip
    hub.heartbeat({"component": "worker-0", "up": True, "restarts": 1, "memory_bytes": 120_000_000, "turned_away": 2,
                   "statistics": OF_A_WORKER})  # fmt: skip
    hub.heartbeat({"component": "worker-0", "kernels_ready": True})
    hub.heartbeat(
        {"component": "push", "statistics": {"stages": {"push_sent": 5, "push_failed": 1, "push_retried": 4}}}
    )
    return hub, clock


def called(hub: Hub, pane: int) -> Hub:
    """In that pane a method was invoked, all of it counted, and another, not all of whose invocations are."""
    for column in ("untold", "invocations"):
        hub.feed(report(pane, {"a.Some.of": 3}, column=column))
    hub.feed(report(pane, {"a.All.of": 9}, column="invocations"))
    return hub


def second(
    hub: Hub, pane: int, mixture: dict[str, int], losses: dict[str, int], column: str = "hits", shed: int = 0
) -> None:
    """One pane with 1 MB of trace. An address in a packet stands for some thousand instructions."""
    times = 10_000 if column == "instructions" else 1
    mixture, rest = ({name: times * n for name, n in m.items()} for m in (mixture, REST))
    hub.feed(report(pane, rest, kind=CodeKind.INTERPRETED, closed=False, column=column))
    accounts = (account(pane * 10**6, (pane + 1) * 10**6, shed=shed, **losses),)
    hub.feed(report(pane, mixture, accounts=accounts, column=column))
