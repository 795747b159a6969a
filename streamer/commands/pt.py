from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np

from jvm.codeview import CodeView
from jvm.inputfile import map_input, read_input
from stages.messages import U8
from stages.pt import dump as packet_dump
from stages.pt import flowtext
from stages.pt.errata import is_known
from stages.pt.flowdecoder import AddressFilter, FlowDecoder, Options
from streamer.cli import Failure

_LINES_AT_ONCE = 4096
_LARGEST_TRACE = 1 << 40  # mapped
_LARGEST_CODE = 1 << 30


class _Number(click.ParamType[int]):
    """An integer as C writes it: 10, 0x10, 020."""

    name = "number"

    def __init__(self, largest: int = (1 << 64) - 1) -> None:
        self._largest = largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = value if isinstance(value, int) else _number(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not 0 <= number <= self._largest:
            self.fail(f"{value} is not between 0 and {self._largest:#x}", param, ctx)
        return number


class _Cpu(click.ParamType[tuple[int, int]]):
    """FAMILY/MODEL[/STEPPING], or none."""

    name = "cpu"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        if value == "none":
            return 0, 0
        try:
            family, model, *stepping = (_number(part) for part in value.split("/"))
        except ValueError:
            self.fail(f"{value!r} is not FAMILY/MODEL, e.g. 6/142", param, ctx)
        if len(stepping) > 1 or min(family, model) < 0:
            self.fail(f"{value!r} is not FAMILY/MODEL, e.g. 6/142", param, ctx)
        if not is_known(family, model):
            self.fail(f"no processor {family}/{model} with Intel PT is known; none: by the book", param, ctx)
        return family, model


def _number(text: str) -> int:
    if len(text) > 1 and text[0] == "0" and text.isdigit():
        return int(text, 8)
    return int(text, 0)


def _load(path: Path) -> bytes:
    try:
        return read_input(path, _LARGEST_CODE)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None


def _trace(path: Path) -> U8:
    try:
        return np.frombuffer(map_input(path, _LARGEST_TRACE), np.uint8)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None


def _image(text: str) -> CodeView:
    """BIN[@ORG]: a flat binary and the address of its first byte."""
    path, at, origin = text.rpartition("@")
    address = 0
    if at:
        try:
            address = _number(origin)
        except ValueError:
            path, at = text, ""
    code = _load(Path(path if at else text))
    if address < 0 or address + len(code) > 1 << 64:
        raise Failure(f"--image: address {address:#x} is out of range")
    return CodeView.of([(address, code)] if code else [])


def _pages(text: str) -> CodeView:
    """ADDRFILE:DUMPFILE: little-endian u64 addresses, and a 4 KiB page for each."""
    addresses_path, colon, dump_path = text.partition(":")
    if not colon:
        raise Failure("--pages wants ADDRFILE:DUMPFILE")
    raw, code = _load(Path(addresses_path)), _load(Path(dump_path))
    if len(raw) % 8 or len(code) != len(raw) // 8 * 4096:
        raise Failure(f"--pages: {dump_path} must have 4096 bytes for each 8-byte address in {addresses_path}")
    addresses = np.frombuffer(raw, "<u8").tolist()
    if addresses and max(addresses) > (1 << 64) - 4096:
        raise Failure(f"--pages: {addresses_path} has an address out of range")
    pages = {address: code[4096 * i : 4096 * (i + 1)] for i, address in enumerate(addresses)}
    try:
        return CodeView.of(sorted(pages.items()))
    except ValueError as error:
        raise Failure(f"--pages: {error}") from None


def _filter(text: str) -> AddressFilter:
    """LO-HI, HI exclusive."""
    try:
        low, high = (_number(part) for part in text.split("-"))
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
        click.option("--cpu", type=_Cpu(), default=(0, 0), metavar="F/M", help="Family/model, for its errata."),
        click.option("--mtc-freq", type=_Number(15), default=0, metavar="N", help="MTCFreq: MTC every 2^N ticks."),
        click.option("--nom-freq", type=_Number(255), default=0, metavar="N", help="Nominal frequency / bus clock."),
        click.option(
            "--cpuid-0x15.eax", "ctc_den", type=_Number(0xFFFFFFFF), default=0, metavar="N",
            help="TSC : crystal clock ratio, denominator.",
        ),
        click.option(
            "--cpuid-0x15.ebx", "ctc_num", type=_Number(0xFFFFFFFF), default=0, metavar="N", help="… numerator."
        ),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def command() -> None:
    """Look into a raw Intel PT trace: its packets, or the instructions that it says were executed."""


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
    file: Path, cpu: tuple[int, int], mtc_freq: int, nom_freq: int, ctc_den: int, ctc_num: int, no_tcal: bool,
    no_wall_clock: bool, no_offset: bool, no_pad: bool, no_timing: bool, no_cyc: bool, no_sync: bool, quiet: bool,
    **options: bool,
) -> None:  # fmt: skip
    """Print the packets of the raw trace FILE, one a line.

    \b
    0000000000000025  fup        3: 0000000000001001
    offset            packet     payload; ? = a digit that the compressed address does not carry

    Bytes that are no packet, and a packet that the end of FILE cuts, are reported as [offset: …]; the dump goes on at
    the next PSB.

    \b
    Examples:
      streamer pt dump trace.pt --cpu 6/142
      streamer pt dump trace.pt --time --mtc-freq 3 --nom-freq 24 --cpuid-0x15.eax 2 --cpuid-0x15.ebx 192
    """
    if options["time"] and options["calibration"]:
        raise Failure("--time and --tcal exclude each other")
    wanted = packet_dump.DumpOptions(
        family=cpu[0], model=cpu[1], sync=not no_sync, pad=not no_pad, timing=not no_timing, cyc=not no_cyc,
        offset=not no_offset, calibrate=not no_tcal, wall_clock=not no_wall_clock, mtc_shift=mtc_freq,
        nominal=nom_freq, ctc_num=ctc_num, ctc_den=ctc_den, **options,
    )  # fmt: skip
    lines = packet_dump.dump(_trace(file), wanted)
    _print(line for line in lines if not quiet or line.startswith("["))


def _raw_filters(function: Callable[..., None]) -> Callable[..., None]:
    """IA32_RTIT_ADDRn as registers: what tools for PT call --filter:addrN_….."""
    for n in reversed(range(4)):
        for part in ("b", "a", "cfg"):
            function = click.option(
                f"--filter:addr{n}_{part}", f"addr{n}_{part}", type=_Number(), default=0, hidden=True
            )(function)
    return function


def _address_filters(text: str | None, registers: dict[str, int]) -> tuple[AddressFilter, ...]:
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
    file: Path, image: str | None, pages: str | None, ip_filter: str | None, bits: str, cpu: tuple[int, int],
    mtc_freq: int, nom_freq: int, ctc_den: int, ctc_num: int, event_ip: bool, event_time: bool, ticks: bool,
    iflags: bool, resync: bool, keep_calibration: bool, blocks: bool, end_on_call: bool, end_on_jump: bool,
    stat: bool, count_instructions: bool, count_blocks: bool, quiet: bool, _ignored: bool, **registers: int,
) -> None:  # fmt: skip
    """Print the address of every instruction that the raw trace FILE says was executed, and events in brackets.

    The trace tells only what the code leaves open, so the code must be given: --image or --pages.

    \b
    ? 0000000000001000            executed; ? in a transaction
    [enabled]  [disabled]         tracing went on, off; [resumed]: on where it went off
    [1b, 1000: error: …]          offset in the trace, address, what is wrong

    \b
    Examples:
      streamer pt flow trace.pt --image code.bin@0x100000
      streamer pt flow trace --pages data.addr:data.dump --filter 0x400000-0x4b6000 --cpu 6/79
    """
    if (image is None) == (pages is None):
        raise Failure("give the code with either --image or --pages")
    view = _image(image) if image is not None else _pages(pages or "")
    options = Options(
        family=cpu[0], model=cpu[1], bits=int(bits), filters=_address_filters(ip_filter, registers),
        mtc_shift=mtc_freq, nominal=nom_freq, ctc_num=ctc_num, ctc_den=ctc_den, keep_calibration=keep_calibration,
        ticks=ticks, iflags=iflags, resync=resync, end_on_call=end_on_call, end_on_jump=end_on_jump, blocks=blocks,
    )  # fmt: skip
    decoder = FlowDecoder(_trace(file), view, options)
    text = flowtext.TextOptions(event_ip, event_time, quiet, number_blocks=stat)
    _print(line for batch in decoder for line in flowtext.lines(batch, text))
    counts = decoder.statistics()
    everything = stat and not count_instructions and not count_blocks
    if stat and (count_instructions or everything):
        click.echo(f"insn: {counts['instructions']}.")
    if stat and (count_blocks or everything):
        click.echo(f"blocks:\t{counts['blocks']}.")
