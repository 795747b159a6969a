"""Intel's own decoder vectors, and traces of real processors, through the commands."""

from __future__ import annotations

import gzip
import hashlib
import os

import numpy as np
import pytest
from click.testing import CliRunner

from jvm.code.snapshot import CodeView
from stages.pt.dump import DumpOptions, dump
from stages.pt.errata import BDM70
from stages.pt.exact.decoder import AddressFilter, FlowDecoder, Options
from streamer.commands.pt import command
from tests.pt.vectors import HARDWARE, VECTORS, Vector, manifest, normalised

_ALL = manifest()
_FILTERS = {"mruby": (0x400000, 0x4B6000), "foo": (0x7FFFF7819000, 0x7FFFF79CA000)}


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.skipif(not _ALL, reason=f"no test vectors in {VECTORS}")
@pytest.mark.parametrize("vector", _ALL, ids=lambda vector: vector.id)
def test_vector(vector: Vector) -> None:
    trace = str(VECTORS / f"{vector.name}.pt")
    options = vector.options[vector.tool].split()
    if vector.cpu:
        options += ["--cpu", vector.cpu]
    if vector.tool == "ptdump":
        output = _run("dump", trace, *options)
    else:
        image = f"{VECTORS / vector.name}.bin@{vector.org:#x}"
        output = _run("flow", trace, "--image", image, *options)
    assert normalised(output) == normalised(vector.expectation.read_text())


def _hardware(name: str) -> tuple[np.ndarray, CodeView]:
    folder = HARDWARE / name
    if not folder.exists():
        pytest.skip(f"no hardware trace in {folder}")
    code = (folder / "data.dump").read_bytes()
    addresses = np.fromfile(folder / "data.addr", "<u8").tolist()
    pages = [(address, code[4096 * i : 4096 * (i + 1)]) for i, address in enumerate(addresses)]
    return np.fromfile(folder / "trace", np.uint8), CodeView.of(pages)


_SLOW_AS_PYTHON = pytest.mark.skipif(
    bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="minutes without compiled kernels"
)


@_SLOW_AS_PYTHON
@pytest.mark.parametrize("name", ["foo", "mruby"])
def test_flow_of_a_real_processor(name: str) -> None:
    trace, view = _hardware(name)
    low, high = _FILTERS[name]
    options = Options(family=6, model=0x4F, filters=(AddressFilter(low, high - 1),))
    assert options.rates()["errata"][0] & BDM70
    digest = hashlib.md5()
    for batch in FlowDecoder(trace, view, options):
        digest.update("".join(f"{ip:x}\n" for ip in batch.ips.tolist()).encode())
    recorded = (HARDWARE / name / "trace.ips.md5").read_text().split()[0]
    assert digest.hexdigest() == recorded


@pytest.mark.parametrize("name", ["foo", "mruby"])
def test_packets_of_a_real_processor(name: str) -> None:
    trace, _ = _hardware(name)
    with gzip.open(HARDWARE / name / "trace.ptdump.gz", "rt") as file:
        expected = normalised(file.read())
    ours = normalised("\n".join(dump(trace, DumpOptions(pad=False, last_ip=True))))
    assert ours == expected
