"""The agent's cost for an untraced JVM: real programs with and without it, in turns.

    python -m benchmarks.agent_overhead [--rounds N] [--java PATH] [--json FILE] [--markdown FILE]
        [--programs fop h2 jython]

Programs (Debian packages fop, libh2-java, jython): fop sets a long document, H2 runs a script of joins and updates,
Jython runs a mix of pure Python. Runs with and without the agent take turns; the median of each, and the median of
the ratios within each turn, are reported, for wall time and CPU time (of all threads). The agent exports all it can,
class bytes included, into a ring without a reader on the temporary directory's file system. Program start is included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from jvm.agent.build import BuildError, library
from jvm.export.ring import RingReader

JARS = Path("/usr/share/java")
FOP_JARS = (
    *("fop", "batik-all", "commons-io", "commons-logging", "fontbox2", "xml-apis", "xml-apis-ext"),
    "xmlgraphics-commons",
)


@dataclass(frozen=True)
class Cost:
    """Seconds of each run, in order; run i without and run i with the agent were neighbours."""

    program: str
    wall_without: list[float]
    wall_with: list[float]
    cpu_without: list[float]
    cpu_with: list[float]
    exported_bytes: int
    dropped: int

    def ratio(self, clock: str) -> float:
        """Median of with / without over the turns."""
        pairs = zip(getattr(self, f"{clock}_with"), getattr(self, f"{clock}_without"), strict=True)
        return statistics.median(a / b for a, b in pairs)


def fop(directory: Path, scale: float = 1.0) -> list[str]:
    words = "the quick brown fox jumps over the lazy dog while seventy wise zebras quietly compare expensive jackets "
    rows = "".join(
        f"<fo:table-row><fo:table-cell border='1pt solid'><fo:block>{i}</fo:block></fo:table-cell>"
        f"<fo:table-cell><fo:block text-align='justify'>{words * (1 + i % 3)}</fo:block></fo:table-cell></fo:table-row>"
        for i in range(round(1000 * scale))
    )
    document = (
        "<fo:root xmlns:fo='http://www.w3.org/1999/XSL/Format'><fo:layout-master-set>"
        "<fo:simple-page-master master-name='a' page-width='21cm' page-height='29cm' margin='2cm'><fo:region-body/>"
        "</fo:simple-page-master></fo:layout-master-set><fo:page-sequence master-reference='a'>"
        "<fo:flow flow-name='xsl-region-body'><fo:table table-layout='fixed' width='100%'>"
        "<fo:table-column column-width='2cm'/><fo:table-column column-width='14cm'/><fo:table-body>"
        f"{rows}</fo:table-body></fo:table></fo:flow></fo:page-sequence></fo:root>"
    )
    (directory / "in.fo").write_text(document)
    jars = ":".join(str(JARS / f"{name}.jar") for name in FOP_JARS)
    main = ["-Djava.awt.headless=true", "-cp", jars, "org.apache.fop.cli.Main", "-q"]
    return [*main, "-fo", str(directory / "in.fo"), "-pdf", str(directory / "out.pdf")]


def h2(directory: Path, scale: float = 1.0) -> list[str]:
    script = [
        "create table item(id int primary key, kind int, name varchar(40), price double)",
        "create table sale(id int primary key, item int, d int, amount int)",
        "insert into item select x, mod(x, 37), 'item ' || x, x * 1.5 from system_range(1, 5000)",
        "insert into sale select x, 1 + mod(x * 7, 5000), mod(x, 365), mod(x, 13)"
        f" from system_range(1, {round(40000 * scale)})",
        "create index by_item on sale(item)",
    ]
    for n in range(8):
        script += [
            "select kind, sum(amount * price), count(distinct d) from sale s join item i on s.item = i.id"
            f" where d > {n * 10} group by kind order by 2 desc",
            f"update item set price = price * 1.01, name = upper(name) || '{n}' where mod(id, 3) = {n % 3}",
            f"select * from (select d, sum(amount) a from sale group by d) where a > {n} order by a, d",
            f"delete from sale where mod(id, 50) = {n}",
        ]
    (directory / "script.sql").write_text(";\n".join(script) + ";\n")
    main = ["-cp", str(JARS / "h2.jar"), "org.h2.tools.RunScript"]
    return [*main, "-url", "jdbc:h2:mem:benchmark", "-script", str(directory / "script.sql")]


def jython(directory: Path) -> list[str]:
    (directory / "program.py").write_text(
        "def sieve(n):\n"
        "    marks = [True] * n\n"
        "    for i in range(2, int(n ** 0.5) + 1):\n"
        "        if marks[i]:\n"
        "            for j in range(i * i, n, i): marks[j] = False\n"
        "    return sum(marks)\n"
        "def words(n):\n"
        "    count = {}\n"
        "    for i in range(n):\n"
        "        w = 'w%d' % (i * i % 977)\n"
        "        count[w] = count.get(w, 0) + len(w)\n"
        "    return sorted(count.items(), key=lambda p: (-p[1], p[0]))[:5]\n"
        "class Node(object):\n"
        "    def __init__(self, depth):\n"
        "        self.children = [Node(depth - 1) for _ in range(2)] if depth else []\n"
        "    def size(self): return 1 + sum(c.size() for c in self.children)\n"
        "import json, re, random, decimal, collections, difflib\n"
        "for turn in range(2):\n"
        "    print(sieve(200000), words(100000), Node(14).size())\n"
        "    text = json.dumps([{'a': i, 'b': str(i)} for i in range(3000)])\n"
        "    print(len(json.loads(text)), len(re.findall(r'\\d+7', text)))\n"
    )
    return ["-Dpython.home=/usr/share/jython", "-jar", str(JARS / "jython.jar"), str(directory / "program.py")]


PROGRAMS: dict[str, Callable[[Path], list[str]]] = {"fop": fop, "h2": h2, "jython": jython}


def run(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command; ends the benchmark if it fails."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"{' '.join(command)[:200]} failed: {errors.decode(errors='replace')[-500:]}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime


def measure(name: str, java: str, rounds: int) -> Cost:
    cost = Cost(name, [], [], [], [], 0, 0)
    exported = dropped = 0  # of the last run; of all runs
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        directory.chmod(0o700)
        plain = [java, "-Xmx600m", *PROGRAMS[name](directory)]
        ring = directory / "jit.ring"
        traced = [java, f"-agentpath:{library()}=ring={ring}", *plain[1:]]
        run(plain)  # files into the page cache
        for turn in range(rounds):
            for with_agent in (turn % 2 == 1, turn % 2 == 0):  # the first of the two alternates
                wall, cpu = run(traced if with_agent else plain)
                (cost.wall_with if with_agent else cost.wall_without).append(wall)
                (cost.cpu_with if with_agent else cost.cpu_without).append(cpu)
                if with_agent:
                    with RingReader(ring) as reader:
                        exported, dropped = reader.pending, dropped + reader.dropped
    return Cost(name, cost.wall_without, cost.wall_with, cost.cpu_without, cost.cpu_with, exported, dropped)


def markdown(costs: list[Cost]) -> str:
    lines = [
        "| program | wall without | wall with | ratio | CPU without | CPU with | ratio | exported |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cost in costs:
        cells = [cost.program]
        for clock in ("wall", "cpu"):
            without, with_ = (statistics.median(getattr(cost, f"{clock}_{side}")) for side in ("without", "with"))
            cells += [f"{without:.2f} s", f"{with_:.2f} s", f"{cost.ratio(clock):.3f}"]
        lost = f" ({cost.dropped} dropped)" if cost.dropped else ""
        lines.append(f"| {' | '.join(cells)} | {cost.exported_bytes / 1e6:.1f} MB{lost} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Overhead of the agent, without tracing.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--java", default="java")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--programs", nargs="+", choices=[*PROGRAMS], default=[*PROGRAMS])
    arguments = parser.parse_args()
    try:
        library()
    except BuildError as error:
        sys.exit(f"agent_overhead: {error}")
    costs = []
    for name in arguments.programs:
        costs.append(measure(name, arguments.java, arguments.rounds))
        print(markdown(costs[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    if arguments.json:
        results = [asdict(c) | {"wall_ratio": c.ratio("wall"), "cpu_ratio": c.ratio("cpu")} for c in costs]
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(costs) + "\n")
    print(markdown(costs))


if __name__ == "__main__":
    main()
