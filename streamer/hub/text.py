"""Pieces of a hot-method view as text, for the live table (`screen.py`), the summary and `streamer report`.

Takes the JSON form (`HotView.json`), because `streamer top` has it from another process. Names come from the traced
program: they are shown as text, without markup or control characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

View = Mapping[str, Any]

KIND_WORDS = {
    "interpreted": "interpreter",
    "c1": "C1",
    "c2": "C2",
    "native_wrapper": "native",
    "stub": "stub",
    "unknown": "?",
}
UNUSUAL_SCORE = 4.0
BAR = 12
CAUSE_TEXTS = {
    "tnt_at_tip": "a conditional branch's packet where an address must come",
    "tip_at_tnt": "an address where a conditional branch stands",
    "return_bit": "a return that is said not to be taken",
    "no_return": "a return to the caller, and no call was seen",
    "off_code": "went where no code is known",
    "stuck": "no instruction, or a loop that nothing ends",
    "not_disabled": "left the traced range, and tracing goes on",
    "fup_off_path": "interrupted at an address that is not on the way",
    "psb_off_path": "a PSB names an address that is not on the way",
    "bad_packet": "bytes that are no packet",
    "enabled_twice": "tracing begins, and had not ended",
    "while_disabled": "branches while tracing is off",
    "wrong_target": "a stub's jump to where it never leads",
    "gave_up": "any of these, where the search for another explanation took too long",
    "other_mode": "16- or 32-bit code, which is not followed",
}


def plain(text: object) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(text))


def bytes_text(count: float) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def percent_down(part: int, whole: int) -> str:
    """In tenths of a percent, rounded down: 100.0 % is said of all only."""
    tenths = 1000 * part // whole
    return f"{tenths // 10}.{tenths % 10} %"


def loss_line(coverage: View) -> str:
    """`98.2 % of 10.0 MB of trace decoded, 60.0 % of that by its addresses only (shed); lost: 120.0 kB desync, …`."""
    size, decoded = int(coverage["bytes"]), int(coverage["decoded"])
    if not size:
        return "no trace bytes"
    lost = sorted(coverage["lost"].items(), key=lambda item: -item[1])
    parts = ", ".join(f"{bytes_text(n)} {words(cause)}" for cause, n in lost)
    line = f"{percent_down(decoded, size)} of {bytes_text(size)} of trace decoded"
    if coverage["shed"]:
        line += f", {percent_down(int(coverage['shed']), decoded)} of that by its addresses only (shed)"
    return f"{line}; lost: {parts}" if lost else f"{line}; nothing lost"


def holes_line(view: View) -> str | None:
    """How many holes of each cause, and the known losses outside the streams; None if there is nothing."""
    parts = [f"{n:,} × {words(cause)}" for cause, n in view["holes"].items()]
    parts += [f"{bytes_text(n)} never written ({words(cause)})" for cause, n in view["unwritten"].items()]
    return f"holes since the start: {', '.join(parts)}" if parts else None


def invocations_text(method: View) -> str:
    """`1,234`; `≥ 1,234` where that is a lower bound, `–` where it is not known."""
    return _count_text(method["invocations"], "≥ " if method["at_least"] else "")


def bytecodes_text(method: View) -> str:
    """`1,234`; `≈ 1,234` where compiled code is in it, `–` where it is not known."""
    return _count_text(method["bytecodes"], "≈ " if method["bytecodes_about"] else "")


def _count_text(count: int | None, mark: str) -> str:
    return "–" if count is None else f"{mark}{count:,}"


def share_text(method: View) -> str:
    """`12.3 %`; with half of its 95 % interval where only a part of the time was traced: `12.3 ± 0.4 %`, or, where that
    says nothing yet, `12 ± 45 %?` (`TOO_EARLY`)."""
    if too_early(method):
        return f"{100 * method['share']:.0f} ± {100 * method['sure']:.0f} %?"
    if method["sure"]:
        return f"{100 * method['share']:.1f} ± {100 * method['sure']:.1f} %"
    return f"{method['share']:.1%}"


TOO_EARLY = "?: too early to say, the interval is wider than the share"


def too_early(method: View) -> bool:
    """Too few panes were traced, or too rare ones: nothing at all would be within the interval."""
    return bool(method["sure"] and method["sure"] >= method["share"])


def contradictions_line(report: View) -> str | None:
    """How often the trace contradicted the code, and where most often; None if it never did."""
    if not report["total"]:
        return None
    line = f"contradictions: {report['total']:,}"
    if report["places"]:
        place = report["places"][0]
        line += f", most often ({place['share']:.0%}, {words(place['cause'])}) at {place_text(place)}"
    return line


def contradictions_screen(report: View) -> list[RenderableType]:
    """The output of `streamer report`."""
    total, instructions = int(report["total"]), int(report["instructions"])
    if not total:
        return [Text(f"No contradiction between trace and code in {instructions:,} instructions.")]
    head = f"{total:,} contradictions between trace and code in {instructions:,} instructions"
    if report["suspect"]:
        head += f", and {int(report['suspect']):,} more in doubt"
    causes = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("share", "times"):
        causes.add_column(name, justify="right", no_wrap=True)
    causes.add_column("cause", no_wrap=True)
    causes.add_column("what was wrong")
    for cause, times in sorted(report["causes"].items(), key=lambda item: -item[1]):
        if times:
            causes.add_row(f"{times / total:.1%}", f"{times:,}", Text(plain(cause)), CAUSE_TEXTS.get(cause, ""))
    places = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("share", "times"):
        places.add_column(name, justify="right", no_wrap=True)
    places.add_column("cause", no_wrap=True)
    places.add_column("code", overflow="fold")
    places.add_column("blob", justify="right", no_wrap=True)
    places.add_column("offset", justify="right", no_wrap=True)
    places.add_column("bytecode", overflow="fold")
    for p in report["places"]:
        blob, offset = (f"{p['start']:#x}", f"+{p['offset']:#x}") if p["start"] else (f"{p['offset']:#x}", "")
        cells = (f"{p['share']:.1%}", f"{p['times']:,}", plain(p["cause"]), plain(p["code"]), blob, offset)
        places.add_row(*(Text(cell) for cell in cells), Text(plain(p["site"])))
    if report["other"]:
        places.add_row(f"{report['other'] / total:.1%}", f"{report['other']:,}", "", "at other places", style="dim")
    return [Text(head, "bold"), causes, places]


def place_text(place: View) -> str:
    """`Shop.page (C2 #12) +0x1f, Shop$Cart.total @ 7`; an address alone where no code is known."""
    if not place["start"]:
        return f"{place['offset']:#x} {plain(place['code'])}"
    site = f", {plain(place['site'])}" if place["site"] else ""
    return f"{plain(place['code'])} +{place['offset']:#x}{site}"


def words(cause: str) -> str:
    return plain(cause).replace("_", " ")


def bar(share: float, largest: float, width: int = BAR) -> str:
    """A bar of eighths of a character, as long as `share` is of `largest`."""
    eighths = round(8 * width * share / largest) if largest else 0
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


def spark(values: Sequence[float], width: int) -> str:
    """The newest values at the right, each character the mean of as many as it takes; as high as the highest of them,
    a space where there is nothing."""
    each = -(-len(values) // width) if values else 1
    groups = [values[max(0, end - each) : end] for end in range(len(values), 0, -each)][::-1]
    means = [sum(group) / len(group) for group in groups]
    top = max(means, default=0.0)
    return "".join(" ▁▂▃▄▅▆▇█"[min(8, -int(-8 * mean // top))] if top > 0 else " " for mean in means).rjust(width)


def short(name: str, width: int) -> str:
    """A method's name in at most `width` characters, never cut in the middle of a word where that can be helped:
    packages become their first letters from the outermost on (`o.a.fop.Area.render`), then go; then the class, and at
    last the method, lose their middle."""
    if len(name) <= width:
        return name
    head, parts = ("", name.split(".")) if not name.startswith("[") else (name, [])
    while len(parts) > 2 and len(".".join((*parts,))) > width:
        long = next((k for k, part in enumerate(parts[:-2]) if len(part) > 1), None)
        if long is None:
            parts = parts[-2:]
        else:
            parts[long] = parts[long][0]
    if len(parts) == 2 and len(".".join(parts)) > width and width - len(parts[1]) - 1 >= 5:
        return f"{middle(parts[0], width - len(parts[1]) - 1)}.{parts[1]}"
    return middle(head or ".".join(parts), width)


def middle(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis in the middle for what is left out."""
    if len(text) <= width:
        return text
    left = max(0, width - 1) // 2
    right = max(0, width - 1) - left
    return f"{text[:left]}…{text[len(text) - right :]}"


def fate_bar(view: View, width: int) -> Text:
    """One line on the window's time: observed, shed, lost, off duty; each has a character of its own."""
    coverage, duty = view["coverage"], float(view["duty"])
    size = int(coverage["bytes"])
    lost = size - int(coverage["decoded"])
    parts = {
        "observed": (duty * (size - lost - int(coverage["shed"])) / size if size else 0.0, "█", "green"),
        "shed": (duty * int(coverage["shed"]) / size if size else 0.0, "▒", "yellow"),
        "lost": (duty * lost / size if size else 0.0, "×", "red"),
        "off duty": (1 - duty, "·", "dim"),
    }
    if not size and duty >= 1:
        return Text("no trace", "dim")
    line, at, before = Text(), 0.0, 0
    for share, mark, style in parts.values():
        at += share
        end = min(width, max(round(width * at), before + (share > 0)))  # a part that there is is seen
        line.append(mark * (end - before), style)
        before = end
    for name, (share, mark, style) in parts.items():
        if share > 0:
            line.append(f"  {mark} ", style).append(f"{name} {_percent(share)}")
    return line


def _percent(share: float) -> str:
    return "< 0.1 %" if 0 < share < 0.001 else "> 99.9 %" if 0.999 < share < 1 else f"{100 * share:.1f} %"


def shift_text(method: View) -> Text:
    """▲ or ▼ with percentage points, the last short window against the reference before it; bold if unusual."""
    points = 100 * (method["now"] - method["before"])
    if abs(points) < 0.5:
        return Text("")
    style = ("red" if points > 0 else "green") + (" bold" if method["moved"] else "")
    return Text(f"{'▲' if points > 0 else '▼'} {points:+.1f}".replace("-", "−"), style)


def kinds_text(kinds: Mapping[str, float]) -> str:
    parts = sorted(((share, KIND_WORDS.get(kind, plain(kind))) for kind, share in kinds.items()), reverse=True)
    return ", ".join(name if share > 0.99 else f"{name} {share:.0%}" for share, name in parts if share >= 0.01)


def clock_text(stretch: str) -> str:
    """`FROM..TO` (`streamer.hub.stretch`) by the clock here: `16:45:42 – 16:45:46`."""
    times = (datetime.fromtimestamp(float(end), UTC).astimezone() for end in stretch.split(".."))
    return " – ".join(f"{time:%H:%M:%S}" for time in times)


def headline(view: View) -> str:
    """One line on the pipeline: window, weight, processes, lag, shift, members that are down."""
    live = [p for p in view["processes"] if p["live"]]
    window = plain(view["window"])
    parts = [clock_text(window) if ".." in window else f"last {window}", f"share of {plain(view['weight'])}"]
    parts.append(f"{len(live)} process{'' if len(live) == 1 else 'es'}")
    lags = [p["lag_seconds"] for p in live if p["lag_seconds"] is not None]
    if lags:
        parts.append(f"lag {max(lags):.1f} s")
    shifted = [(p["shift_distance"], p["shift_score"]) for p in live if p["shift_distance"] is not None]
    if shifted:
        distance, score = max(shifted)
        parts.append(f"shift {distance:.0%}{' (unusual)' if score >= UNUSUAL_SCORE else ''}")
    if view["duty"] < 1:
        parts.append(f"{view['duty']:.1%} of the time traced")
    if view["coverage"]["shed"]:
        parts.append(f"{view['coverage']['shed'] / view['coverage']['decoded']:.0%} of the trace shed")
    if view["restarts"]:
        parts.append(f"{view['restarts']} restart{'' if view['restarts'] == 1 else 's'}")
    parts += [f"{plain(name)} is down" for name in view["down"]]
    return " · ".join(parts)
