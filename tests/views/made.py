"""Made-up trees for what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stages.messages import TREE_DTYPE, TreeReport
from tests.hub.reports import HOST, PID

Stack = tuple[str, ...]
MAIN = "org.apache.fop.cli.Main.main"
LAYOUT = f"{MAIN}/org.apache.fop.area.PageSequence.layout"
BEFORE: dict[str, int] = {
    f"{LAYOUT}": 40,
    f"{LAYOUT}/org.apache.fop.fonts.GlyphTable.lookup": 220,
    f"{LAYOUT}/org.apache.fop.fonts.GlyphTable.lookup/java.util.HashMap.getNode": 160,
    f"{LAYOUT}/org.apache.fop.fonts.GlyphTable.lookup/java.util.HashMap.getNode/java.lang.String.equals": 70,
    f"{LAYOUT}/org.apache.fop.area.LineArea.addInline": 310,
    f"{MAIN}/[interpreter]": 60,
    f"{MAIN}/org.apache.fop.pdf.PDFStream.deflate": 20,
    "[unknown caller]/java.lang.StringLatin1.charAt": 25,
}
NOW: dict[str, int] = {
    **BEFORE,
    f"{LAYOUT}/org.apache.fop.area.LineArea.addInline": 90,
    f"{MAIN}/org.apache.fop.pdf.PDFStream.deflate": 380,
    f"{MAIN}/org.apache.fop.pdf.PDFStream.deflate/java.util.zip.Deflater.deflateBytes": 150,
}
SUSPECT = {f"{LAYOUT}/org.apache.fop.fonts.GlyphTable.lookup": 90}


def tree(
    pane: int, spent: Mapping[str, int], suspect: Mapping[str, int] | None = None, *, tid: int = 7, pid: int = PID
) -> TreeReport:
    """Instructions by stack, names with slashes between; invocations are a tenth of them, bytecodes none, a tick each
    instruction."""
    rows: dict[str, int] = {"": 0}
    names = ["[thread]"]
    nodes = [(-1, 0, tid)]
    for path in (*spent, *(suspect or {})):
        for end in [i for i, c in enumerate(f"{path}/") if c == "/"]:
            above, _, name = path[:end].rpartition("/")
            if path[:end] not in rows:
                rows[path[:end]] = len(nodes)
                names += [name] if name not in names else []
                nodes.append((rows[above], names.index(name), 3 if above and not name.startswith("[") else -1))
    out = np.zeros(len(nodes), TREE_DTYPE)
    out["parent"], out["method"], out["bci"] = zip(*nodes, strict=True)
    for certainty, counts in (("observed", spent), ("suspect", suspect or {})):
        for path, count in counts.items():
            out[f"{certainty}_instructions"][rows[path]] = 1000 * count
            out[f"{certainty}_ticks"][rows[path]] = 1000 * count
            out[f"{certainty}_invocations"][rows[path]] = 100 * count
    return TreeReport(HOST, pid, 0, pane, out, tuple(names))


def large(nodes: int, pane: int = 1, seed: int = 1) -> TreeReport:
    """A tree of so many nodes, some fifty deep, with weights over four decades."""
    random = np.random.default_rng(seed)
    out = np.zeros(nodes, TREE_DTYPE)
    out["parent"] = np.arange(nodes) * random.uniform(0, 1, nodes) ** 0.25
    out["parent"][0], out["bci"] = -1, np.arange(nodes)  # siblings of one name stay apart
    out["method"] = random.integers(0, 2000, nodes)
    out["observed_instructions"] = np.exp(random.uniform(0, 9, nodes)).astype(np.uint64)
    out["method"][0] = 2000
    kinds = ("java.util.A", "app.shop.B", "[interpreter] ")
    names = (*(f"{kinds[k % 3]}{k}.method{k}" for k in range(2000)), "[thread]")
    return TreeReport(HOST, PID, 0, pane, out, names)
