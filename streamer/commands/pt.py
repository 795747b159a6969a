from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stages.pt.errata import is_known
from streamer.cli import Failure
from streamer.number import number

if TYPE_CHECKING:
    from capture.auxdata import Run
    from stages.messages import PtConfig
    from stages.pt.exact.decoder import AddressFilter, Batch
    from stages.pt.exact.text import TextOptions
    from stages.pt.whichcpu import Faults, Places

_LINES_AT_ONCE = 4096


class _Number(click.ParamType[int]):
    """An integer as C writes it: 10, 0x10, 020."""

    name = "number"

    def __init__(self, largest: int = (1 << 64) - 1) -> None:
        self._largest = largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            found = value if isinstance(value, int) else number(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not 0 <= found <= self._largest:
            self.fail(f"{value} is not between 0 and {self._largest:#x}", param, ctx)
        return found


class _Cpu(click.ParamType[tuple[int, int]]):
    """FAMILY/MODEL[/STEPPING], or none."""

    name = "cpu"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        if value == "none":
            return 0, 0
        try:
            family, model, *stepping = (number(part) for part in value.split("/"))
        except ValueError:
            self.fail(f"{value!r} is not FAMILY/MODEL, e.g. 6/142", param, ctx)
        if len(stepping) > 1 or min(family, model) < 0:
            self.fail(f"{value!r} is not FAMILY/MODEL, e.g. 6/142", param, ctx)
        if not is_known(family, model):
            self.fail(f"no processor {family}/{model} with Intel PT is known; none: by the book", param, ctx)
        return family, model


def _hint(run: Run, places: Places, faults: Faults) -> None:
    from stages.pt import whichcpu

    if text := whichcpu.hint(run.data, places, faults, run.offset):
        click.echo(f"streamer: {text}", err=True)


class _Machine(NamedTuple):
    """The processor that made the trace: as options say, else as the file does."""

    family: int
    model: int
    mtc_shift: int
    nominal: int
    ctc_num: int
    ctc_den: int
    certain: bool  # which processor

    @classmethod
    def of(
        cls, config: PtConfig, cpu: tuple[int, int] | None, mtc: int | None, nominal: int, den: int | None,
        num: int | None,
    ) -> _Machine:  # fmt: skip
        family, model = (config.family, config.model) if cpu is None else cpu
        return cls(
            family, model, max(0, config.mtc_shift) if mtc is None else mtc, nominal,
            config.ctc_num if num is None else num, config.ctc_den if den is None else den,
            cpu is not None or (family, model) != (0, 0),
        )  # fmt: skip


def _filter(text: str) -> AddressFilter:
    """LO-HI, HI exclusive."""
    from stages.pt.exact.decoder import AddressFilter

    try:
        low, high = (number(part) for part in text.split("-"))
    except ValueError:
        raise Failure(f"--filter wants LO-HI, e.g. 0x400000-0x4b6000, not {text!r}") from None
    if not 0 <= low < high <= 1 << 64:
        raise Failure(f"--filter {text}: LO must be below HI")
    return AddressFilter(low, high - 1)


def _print(lines: Iterable[str]) -> None:
    """Many lines at a time: a trace has millions."""
    held: list[str] = []
    for line in lines:
        held.append(line)
        if len(held) == _LINES_AT_ONCE:
            sys.stdout.write("\n".join(held) + "\n")
            held.clear()
    if held:
        sys.stdout.write("\n".join(held) + "\n")
    sys.stdout.flush()


_Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def _shared(function: Callable[..., None]) -> Callable[..., None]:
    """Options about the machine that made the trace."""
    options: tuple[_Decorator, ...] = (
        click.option("--stream", metavar="NAME", help="Of a perf.data with several: cpu0, tid4711, …"),
        click.option(
            "--cpu", type=_Cpu(), metavar="F/M", help="Family/model, for its errata; none: by the book."
        ),
        click.option("--mtc-freq", type=_Number(15), metavar="N", help="MTCFreq: MTC every 2^N ticks."),
        click.option("--nom-freq", type=_Number(255), default=0, metavar="N", help="Nominal frequency / bus clock."),
        click.option(
            "--cpuid-0x15.eax", "ctc_den", type=_Number(0xFFFFFFFF), metavar="N",
            help="TSC : crystal clock ratio, denominator.",
        ),
        click.option(
            "--cpuid-0x15.ebx", "ctc_num", type=_Number(0xFFFFFFFF), metavar="N", help="… numerator."
        ),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def command() -> None:
    """Look into an Intel PT trace: its packets, or the instructions that it says were executed.

    \b
    Examples:
      streamer pt dump trace.pt --cpu 6/142
      streamer pt flow trace.pt --image code.bin@0x100000
    """


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@_shared
@click.option("--time", is_flag=True, help="Show the estimated TSC behind timing packets.")
@click.option("--tcal", "calibration", is_flag=True, help="Show the TSC ticks a core cycle instead.")
@click.option("--time-delta", "delta", is_flag=True, help="… as differences.")
@click.option("--no-tcal", is_flag=True, help="Do not estimate cycles; CYC then tells no time.")
@click.option("--no-wall-clock", is_flag=True, help="Time counts from 0 until a TSC comes.")
@click.option("--keep-tcal-on-ovf", "keep_calibration", is_flag=True, help="Calibration holds across an overflow.")
@click.option("--lastip", "last_ip", is_flag=True, help="Show the full address behind packets with an IP.")
@click.option("--exec-mode", is_flag=True, help="Show the code size behind MODE.Exec.")
@click.option("--raw", is_flag=True, help="Show each packet's bytes.")
@click.option("--no-offset", is_flag=True, help="Do not show offsets.")
@click.option("--no-pad", is_flag=True, help="Do not show PAD packets.")
@click.option("--no-timing", is_flag=True, help="Do not show timing packets.")
@click.option("--no-cyc", is_flag=True, help="Do not show CYC packets, nor use them.")
@click.option("--no-sync", is_flag=True, help="The first byte begins a packet: do not look for a PSB.")
@click.option("--quiet", is_flag=True, help="Errors alone.")
def dump(
    file: Path, stream: str | None, cpu: tuple[int, int] | None, mtc_freq: int | None, nom_freq: int,
    ctc_den: int | None, ctc_num: int | None, no_tcal: bool, no_wall_clock: bool, no_offset: bool,
    no_pad: bool, no_timing: bool, no_cyc: bool, no_sync: bool, quiet: bool, **options: bool,
) -> None:  # fmt: skip
    """Print the packets of the trace FILE, one a line: a raw trace, or a perf.data, which says what made it.

    \b
    0000000000000025  fup        3: 0000000000001001
    offset            packet     payload; ? = a digit that the compressed address does not carry

    Bytes that are no packet, and a packet that the end of FILE cuts, are reported as [offset: …]; the dump goes on at
    the next PSB. Of a perf.data one stream is shown, with its own offsets; where trace was lost stands so.

    \b
    Examples:
      streamer pt dump trace.pt --cpu 6/142
      streamer pt dump perf.data --stream cpu0
      streamer pt dump trace.pt --time --mtc-freq 3 --nom-freq 24 --cpuid-0x15.eax 2 --cpuid-0x15.ebx 192
    """
    from stages.pt import dump as packet_dump  # with numba, as all that decodes
    from stages.pt import whichcpu
    from streamer import ptinput

    if options["time"] and options["calibration"]:
        raise Failure("--time and --tcal exclude each other")
    trace = ptinput.trace(file, stream, sync=not no_sync)
    machine = _Machine.of(trace.config, cpu, mtc_freq, nom_freq, ctc_den, ctc_num)
    wanted = packet_dump.DumpOptions(
        sync=not no_sync, pad=not no_pad, timing=not no_timing, cyc=not no_cyc, offset=not no_offset,
        calibrate=not no_tcal, wall_clock=not no_wall_clock, family=machine.family, model=machine.model,
        mtc_shift=machine.mtc_shift, nominal=machine.nominal, ctc_num=machine.ctc_num, ctc_den=machine.ctc_den,
        **options,
    )  # fmt: skip
    last: Run | None = None
    for run in trace.runs:
        if last is not None:
            _print([ptinput.gap(last, run)])
        bad = whichcpu.Places()
        lines = packet_dump.dump(run.data, wanted, run.offset, bad.add)
        _print(line for line in lines if not quiet or line.startswith("["))
        if not machine.certain:
            _hint(run, bad, whichcpu.packet_faults)
        last = run


def _raw_filters(function: Callable[..., None]) -> Callable[..., None]:
    """IA32_RTIT_ADDRn as registers: tools for PT call them --filter:addrN_….."""
    for n in reversed(range(4)):
        for part in ("b", "a", "cfg"):
            function = click.option(
                f"--filter:addr{n}_{part}", f"addr{n}_{part}", type=_Number(), default=0, hidden=True
            )(function)
    return function


def _address_filters(text: str | None, registers: dict[str, int]) -> tuple[AddressFilter, ...]:
    from stages.pt.exact.decoder import AddressFilter

    filters = [_filter(text)] if text else []
    for n in range(4):
        kind = registers[f"addr{n}_cfg"]
        if kind in (1, 2):
            filters.append(AddressFilter(registers[f"addr{n}_a"], registers[f"addr{n}_b"], stop=kind == 2))
    return tuple(filters)


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--image", metavar="BIN[@ORG]", help="Code: a flat binary, and the address of its first byte (0).")
@click.option("--pages", metavar="ADDRS:DUMP", help="Code: u64 page addresses, and the 4 KiB pages in that order.")
@click.option("--filter", "ip_filter", metavar="LO-HI", help="IP filter of the trace; HI is the first address outside.")
@click.option("--bits", type=click.Choice(["16", "32", "64"]), default="64", help="Code size until the trace says.")
@_shared
@click.option("--event:ip", "event_ip", is_flag=True, help="Show addresses with events.")
@click.option("--event:time", "event_time", is_flag=True, help="Show the TSC with events.")
@click.option("--event:tick", "ticks", is_flag=True, help="Make an event of each step of time at a branch.")
@click.option("--event:iflags", "iflags", is_flag=True, help="Show changes of the interrupt flag.")
@click.option("--resync-on-error", "resync", is_flag=True, help="After an error go on at the next address.")
@click.option("--insn:keep-tcal-on-ovf", "--block:keep-tcal-on-ovf", "keep_calibration", is_flag=True, hidden=True)
@click.option("--block:show-blocks", "blocks", is_flag=True, help="Show where the decoder paused.")
@click.option("--block:end-on-call", "end_on_call", is_flag=True, help="Pause after each direct call.")
@click.option("--block:end-on-jump", "end_on_jump", is_flag=True, help="Pause after each direct jump.")
@click.option("--stat", is_flag=True, help="End with all counts,")
@click.option("--stat:insn", "count_instructions", is_flag=True, help="… or that of instructions,")
@click.option("--stat:blocks", "count_blocks", is_flag=True, help="… or of blocks.")
@click.option("--quiet", "-q", is_flag=True, help="Errors and counts alone.")
@click.option("--block-decoder", "--insn-decoder", "--no-inst", "--check", "_ignored", is_flag=True, hidden=True)
@_raw_filters
def flow(
    file: Path, image: str | None, pages: str | None, ip_filter: str | None, bits: str, stream: str | None,
    cpu: tuple[int, int] | None, mtc_freq: int | None, nom_freq: int, ctc_den: int | None, ctc_num: int | None,
    event_ip: bool, event_time: bool, ticks: bool, iflags: bool, resync: bool, keep_calibration: bool, blocks: bool,
    end_on_call: bool, end_on_jump: bool, stat: bool, count_instructions: bool, count_blocks: bool, quiet: bool,
    _ignored: bool, **registers: int,
) -> None:  # fmt: skip
    """Print the address of every instruction that the trace FILE says was executed, and events in brackets.

    FILE is a raw trace or a perf.data, which says what made it; of that one stream is followed.

    The trace tells only what the code leaves open, so the code must be given: --image or --pages.

    \b
    ? 0000000000001000            executed; ? in a transaction
    [enabled]  [disabled]         tracing went on, off; [resumed]: on where it went off
    [1b, 1000: error: …]          offset in the trace, address, what is wrong

    \b
    Examples:
      streamer pt flow trace.pt --image code.bin@0x100000
      streamer pt flow perf.data --stream tid4711 --image code.bin@0x7f3a00000000
      streamer pt flow trace --pages data.addr:data.dump --filter 0x400000-0x4b6000 --cpu 6/79
    """
    from stages.pt import whichcpu  # with numba, as all that decodes
    from stages.pt.exact.decoder import FlowDecoder, Options
    from stages.pt.exact.instructions import Instructions
    from stages.pt.exact.text import TextOptions
    from streamer import ptinput

    if (image is None) == (pages is None):
        raise Failure("give the code with either --image or --pages")
    view = ptinput.image(image) if image is not None else ptinput.pages(pages or "")
    trace = ptinput.trace(file, stream)
    machine = _Machine.of(trace.config, cpu, mtc_freq, nom_freq, ctc_den, ctc_num)
    options = Options(
        bits=int(bits), filters=_address_filters(ip_filter, registers), keep_calibration=keep_calibration, ticks=ticks,
        iflags=iflags, resync=resync, end_on_call=end_on_call, end_on_jump=end_on_jump, blocks=blocks,
        family=machine.family, model=machine.model, mtc_shift=machine.mtc_shift, nominal=machine.nominal,
        ctc_num=machine.ctc_num, ctc_den=machine.ctc_den,
    )  # fmt: skip
    text = TextOptions(event_ip, event_time, quiet, number_blocks=stat)
    code = Instructions(view, options.bits)
    counts: Counter[str] = Counter()
    last: Run | None = None
    for run in trace.runs:
        if last is not None:
            _print([ptinput.gap(last, run)])
        errors = whichcpu.Places()
        decoder = FlowDecoder(run.data, code, options)
        _print(line for batch in decoder for line in _flow_lines(batch, run.offset, text, errors))
        counts.update({name: decoder.statistics()[name] for name in ("instructions", "blocks")})
        if not machine.certain:
            _hint(run, errors, whichcpu.flow_faults(code, options))
        last = run
    everything = stat and not count_instructions and not count_blocks
    if stat and (count_instructions or everything):
        click.echo(f"insn: {counts['instructions']}.")
    if stat and (count_blocks or everything):
        click.echo(f"blocks:\t{counts['blocks']}.")


def _flow_lines(batch: Batch, base: int, text: TextOptions, errors: Places) -> Iterator[str]:
    """The lines of `batch`, offsets counted from `base`; the places of its first errors are added to `errors`."""
    from stages.pt.events.event import ERROR
    from stages.pt.exact.text import lines
    from stages.pt.whichcpu import errors_in

    for place in errors_in(batch.events):
        errors.add(place)
    if base:
        batch.events["a"][batch.events["kind"] == ERROR] += base
    return lines(batch, text)
