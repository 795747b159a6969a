"""Exports, opened by the tools and the schema that they are for."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from opentelemetry.proto.profiles.v1development import profiles_pb2

from stages.cct.tree import Tree
from stages.cct.views import View
from stages.messages import TREE_DTYPE, TreeReport
from streamer.commands import export
from streamer.exports import formats, pprof
from streamer.exports.formats import FORMATS, Export, TooLargeError
from streamer.exports.protos import messages
from streamer.trees.file import Saved, packed, unpacked
from tests.hub.reports import HOST, PID
from tests.npm import from_npm
from tests.views.made import NOW, SUSPECT, large, tree
from tests.views.test_flame import client, seen

HZ = 2e9


def saved() -> Saved:
    report = tree(0, NOW, SUSPECT)
    return Saved(Tree(report.nodes, report.names), HZ, "host", 42)


def asked(kind: str) -> list[str]:
    return ["--experimental"] if FORMATS[kind].experimental else []


def written(kind: str, **options: object) -> bytes:
    return FORMATS[kind].write(Export(saved(), View(), **options))  # type: ignore[arg-type]


def go_pprof() -> str:
    """Of Debian's Go."""
    found = sorted(Path("/usr/lib").glob("go-*/pkg/tool/*/pprof"))
    if not found:
        pytest.skip("pprof is missing (Debian package golang-1.19-go)")
    return str(found[-1])


@pytest.mark.peer
@pytest.mark.parametrize(("weight", "unit"), [("instructions", ""), ("time", "us"), ("invocations", "")])
def test_the_real_pprof_opens_it(tmp_path: Path, weight: str, unit: str) -> None:
    file = tmp_path / "a.pb.gz"
    file.write_bytes(written("pprof"))
    run = [go_pprof(), "-top", "-cum", f"-sample_index={weight}", f"-unit={unit or 'count'}", "-nodecount=50"]
    shown = subprocess.run([*run, str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert shown.returncode == 0, shown.stderr
    # flat, flat%, sum%, cum, cum%, name
    rows = {
        line.split()[-1]: line.split() for line in shown.stdout.splitlines() if re.search(r"% +\S+ +[\d.]+% +\S", line)
    }
    layout = rows["org.apache.fop.area.PageSequence.layout"]
    below = {path: n for path, n in {**NOW}.items() if "PageSequence.layout" in path}
    total = sum(below.values()) + 90
    scale = {"instructions": 1000, "time": 1000 / HZ * 1e6, "invocations": 100}[weight]
    assert float(layout[3].removesuffix(unit)) == pytest.approx(total * scale, rel=0.01)
    assert float(layout[0].removesuffix(unit)) == pytest.approx(40 * scale, rel=0.01)
    whole = sum(NOW.values()) + 90
    assert float(layout[4].removesuffix("%")) == pytest.approx(100 * total / whole, abs=0.01)


@pytest.mark.peer
def test_threads_are_labels(tmp_path: Path) -> None:
    file = tmp_path / "a.pb.gz"
    file.write_bytes(FORMATS["pprof"].write(Export(saved(), View(threads=True))))
    shown = subprocess.run([go_pprof(), "-tags", str(file)], capture_output=True, text=True, timeout=60, check=True)
    assert re.search(r"thread: Total", shown.stdout)
    assert re.search(r"100%: +7\b|7 *$", shown.stdout, re.MULTILINE)
    one = saved()
    names = ("[thread] http-7", *one.tree.names[1:])
    file.write_bytes(FORMATS["pprof"].write(Export(replace(one, tree=Tree(one.tree.nodes, names)), View(by_name=True))))
    shown = subprocess.run([go_pprof(), "-tags", str(file)], capture_output=True, text=True, timeout=60, check=True)
    assert re.search(r"thread_name: Total.*http-#", shown.stdout, re.DOTALL)


def test_pprof_is_read_back_by_another_description() -> None:
    """Only fields that are looked at here, with the numbers of profile.proto."""
    table = {
        "Profile": {"sample_type": (1, "ValueType[]"), "sample": (2, "Sample[]"), "location": (4, "Location[]"),
                    "function": (5, "Function[]"), "string_table": (6, "string[]")},
        "ValueType": {"type": (1, "int64"), "unit": (2, "int64")},
        "Sample": {"location_id": (1, "uint64[]"), "value": (2, "int64[]")},
        "Location": {"id": (1, "uint64"), "line": (4, "Line[]")},
        "Line": {"function_id": (1, "uint64")},
        "Function": {"id": (1, "uint64"), "name": (2, "int64")},
    }  # fmt: skip
    read = messages("again", table)["Profile"].FromString(gzip.decompress(written("pprof", observed=True)))
    text = list(read.string_table)
    assert text[0] == ""
    assert [(text[t.type], text[t.unit]) for t in read.sample_type] == list(pprof.UNITS.items())
    names = {f.id: text[f.name] for f in read.function}
    places = {place.id: names[place.line[0].function_id] for place in read.location}
    stacks = {"/".join(places[k] for k in reversed(s.location_id)): list(s.value) for s in read.sample}
    assert stacks == {path: [1000 * n, 500 * n, 100 * n, 0] for path, n in NOW.items()}


@pytest.mark.peer
def test_speedscope_by_its_published_schema(tmp_path: Path) -> None:
    schema = json.loads(from_npm("speedscope@1.25.0", "package/dist/release/file-format-schema.json", tmp_path))
    for view in (View(), View(threads=True)):
        jsonschema.validate(json.loads(FORMATS["speedscope"].write(Export(saved(), view))), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"profiles": [{}]}, schema)


def test_speedscope_has_each_stack_with_its_weight() -> None:
    told = json.loads(written("speedscope", observed=True))
    assert [p["name"] for p in told["profiles"]] == [f"host-42: {w}" for w in ("instructions", "time", "invocations")]
    frames = [frame["name"] for frame in told["shared"]["frames"]]
    for profile, scale in zip(told["profiles"], (1000, 1000 / HZ, 100), strict=True):
        stacks = {"/".join(re.sub(" @3$", "", frames[k]) for k in stack): weight
                  for stack, weight in zip(profile["samples"], profile["weights"], strict=True)}  # fmt: skip
        assert stacks == pytest.approx({path: scale * n for path, n in NOW.items()})
        assert profile["endValue"] == pytest.approx(scale * sum(NOW.values()))


def test_opentelemetrys_own_classes_read_it() -> None:
    report = tree(0, NOW, SUSPECT)
    of = Export(Saved(Tree(report.nodes, report.names), HZ, "host", 42), View(threads=True), observed=True)
    read = profiles_pb2.ProfilesData.FromString(FORMATS["otlp"].write(of))
    d = read.dictionary
    for table in (d.mapping_table, d.location_table, d.function_table, d.link_table, d.attribute_table, d.stack_table):
        assert table[0] == type(table[0])()  # as the protocol asks
    assert d.string_table[0] == ""
    assert len(set(d.string_table)) == len(d.string_table)
    (resource,) = read.resource_profiles
    said = {a.key: a.value.int_value or a.value.string_value for a in resource.resource.attributes}
    assert (said["host.name"], said["process.pid"]) == ("host", 42)
    scale = {"instructions": 1000, "time": 500, "invocations": 100}
    profiles = {d.string_table[p.sample_type.type_strindex]: p for p in resource.scope_profiles[0].profiles}
    assert list(profiles) == list(pprof.UNITS)
    for name, p in profiles.items():
        assert d.string_table[p.sample_type.unit_strindex] == pprof.UNITS[name]
        stacks = {}
        for sample in p.samples:
            lines = [d.location_table[k].lines[0] for k in reversed(d.stack_table[sample.stack_index].location_indices)]
            names = [d.string_table[d.function_table[line.function_index].name_strindex] for line in lines]
            (value,) = sample.values
            stacks["/".join(names)] = value
            (of_thread,) = (d.attribute_table[k] for k in sample.attribute_indices)
            assert (d.string_table[of_thread.key_strindex], of_thread.value.int_value) == ("thread.id", 7)
        assert stacks == ({path: scale[name] * n for path, n in NOW.items()} if name in scale else {})


def test_an_experimental_format_is_for_those_who_ask_for_one(tmp_path: Path) -> None:
    file = tmp_path / "a.cct"
    file.write_bytes(packed(saved()))
    done = CliRunner().invoke(export.command, [str(file), "--format", "otlp"])
    assert (done.exit_code, "--experimental" in done.output) == (2, True)


def test_a_file_comes_back_as_it_went_and_as_collapsed_stacks(tmp_path: Path) -> None:
    file, out = tmp_path / "a.cct", tmp_path / "out"
    file.write_bytes(packed(saved()))
    for kind in FORMATS:
        options = ["--format", kind, "-o", str(out), "--weight", "time"]
        done = CliRunner().invoke(export.command, [str(file), *options, *asked(kind)])
        assert (done.exit_code, done.output) == (0, "")
        assert out.read_bytes() == FORMATS[kind].write(Export(saved(), View(), "time"))
    assert np.array_equal(unpacked(out.read_bytes()).tree.nodes, saved().tree.nodes)  # the last is cct
    lines = written("collapsed", observed=True).decode().splitlines()
    assert {re.sub(" @3(?=;| )", "", line) for line in lines} == {
        f"all threads;{path.replace('/', ';')} {1000 * n}" for path, n in NOW.items()
    }
    nowhere = CliRunner().invoke(export.command, [str(file), "-o", str(tmp_path)])
    assert nowhere.exit_code != 0
    assert "Traceback" not in nowhere.output


def test_names_from_a_file_cannot_break_a_line() -> None:
    report = tree(0, {"a\nb;c.d": 1})
    export_ = Export(Saved(Tree(report.nodes, report.names), HZ), View())
    assert FORMATS["collapsed"].write(export_) == b"all threads;a?b:c.d 1000\n"


def recursion(depth: int) -> Saved:
    """A method that calls itself so deep, and spends something each time."""
    rows = np.zeros(depth + 1, TREE_DTYPE)
    rows["parent"], rows["method"] = np.arange(-1, depth), 1
    rows["method"][0], rows["bci"][0], rows["observed_instructions"][1:] = 0, 7, 1
    return Saved(Tree(rows, ("[thread]", "a.B.again")), HZ)


@pytest.mark.parametrize("kind", ["pprof", "collapsed", "speedscope", "otlp"])
async def test_stacks_that_would_fill_the_memory_are_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MOST_FRAMES", 1 << 20)
    deep = recursion(1500)
    with pytest.raises(TooLargeError, match="fold recursion"):
        FORMATS[kind].write(Export(deep, View()))
    assert FORMATS[kind].write(Export(deep, View(recursion=False)))
    assert FORMATS[kind].write(Export(deep, View(), share=0.5))
    file = tmp_path / "deep.cct"
    file.write_bytes(packed(deep))
    done = CliRunner().invoke(export.command, [str(file), "--format", kind, *asked(kind)])
    assert (done.exit_code, "frames, and 1,048,576 are the most" in done.output) == (1, True)
    hub = seen()
    hub.trees.feed(TreeReport(HOST, PID, 0, 59, deep.tree.nodes, deep.tree.names))
    async with client(hub) as http:
        answer = await http.get(f"/api/export?format={kind}&experimental=1")
        assert (answer.status_code, "min_share" in answer.json()["error"]) == (400, True)
        assert (await http.get(f"/api/export?format={kind}&min_share=0.001&experimental=1")).status_code == 200


@pytest.mark.parametrize("kind", FORMATS)
async def test_over_http(kind: str) -> None:
    hub = seen()
    hub.trees.feed(large(3000, 59))
    async with client(hub) as http:
        if FORMATS[kind].experimental:
            refused = await http.get(f"/api/export?format={kind}")
            assert (refused.status_code, "experimental=1" in refused.json()["error"]) == (400, True)
        kind_ = f"{kind}&experimental={int(FORMATS[kind].experimental)}"
        answer = await http.get(f"/api/export?format={kind_}&window=1m")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == FORMATS[kind].media_type
        assert answer.headers["content-disposition"].endswith(f'"profile{FORMATS[kind].suffix}"')
        assert len(answer.content) > 1000
        empty = await http.get(f"/api/export?format={kind_}&thread=99")
        assert empty.status_code == 200


@pytest.mark.parametrize("query", ["format=svg", "format=pprof&window=7s", "threads=yes", "weight=hits", "pid=1"])
async def test_wrong_questions_over_http(query: str) -> None:
    async with client(seen()) as http:
        answer = await http.get(f"/api/export?{query}")
        assert answer.status_code == 400
        assert answer.json()["error"]
