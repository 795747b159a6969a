"""Real programs from Debian packages (fop, libh2-java, jython), as the command lines of java that run them.

fop sets a long document, H2 runs a script of joins and updates, Jython runs a mix of pure Python. `scale` is of their
work, not of their start.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

JARS = Path("/usr/share/java")
FOP_JARS = (
    *("fop", "batik-all", "commons-io", "commons-logging", "fontbox2", "xml-apis", "xml-apis-ext"),
    "xmlgraphics-commons",
)


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
