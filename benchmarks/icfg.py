"""The cost of having the control-flow graph of a process.

    python -m benchmarks.icfg [--classes REGEX] [--json]

Adds the classes of a JDK's java.base (those that a pattern of `jimage extract --include` chooses) to an ICFG one by
one, finds all callees, and removes every class again. Times are those of the process's CPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from jvm.bytecode.class_file import ClassFile
from jvm.bytecode.icfg import Icfg


def extracted(pattern: str, to: Path) -> list[bytes]:
    jimage = Path(shutil.which("jimage") or "jimage").resolve()
    image = jimage.parent.parent / "lib" / "modules"
    subprocess.run([jimage, "extract", "--dir", to, "--include", pattern, image], check=True)
    return [path.read_bytes() for path in sorted(to.rglob("*.class")) if path.name != "module-info.class"]


def measure(classes: list[bytes]) -> dict[str, float]:
    """Times in seconds, sizes in units."""
    warm = Icfg()
    warm.add(1, 0, "A", ClassFile.of(classes[0]))
    began = time.process_time()
    files = [ClassFile.of(data) for data in classes]
    opened = time.process_time()
    icfg, longest = Icfg(), 0.0
    for id_, file in enumerate(files, 1):
        before = time.process_time()
        icfg.add(id_, 0, file.name or "", file)
        longest = max(longest, time.process_time() - before)
    added = time.process_time()
    longest_update = 0.0
    while True:
        before = time.process_time()
        left = icfg.update()
        longest_update = max(longest_update, time.process_time() - before)
        if not left:
            break
    updated = time.process_time()
    graph = icfg.graph()
    methods = int(np.count_nonzero(graph.methods.class_id))
    size = sum(column.nbytes for part in (graph.nodes, graph.methods, graph.sites, graph.calls) for column in part)
    icfg.callers()
    reversed_ = time.process_time()
    for id_ in range(1, len(files) + 1):
        icfg.remove(id_)
    removed = time.process_time()
    return {
        "classes": len(files), "methods": methods, "nodes": len(graph.nodes.kind), "calls": len(graph.calls.callee),
        "callees": len(graph.callee), "bytes": size + graph.callee.nbytes + graph.arm.nbytes + graph.handler.nbytes,
        "open_us_a_method": 1e6 * (opened - began) / methods, "add_us_a_method": 1e6 * (added - opened) / methods,
        "callees_us_a_method": 1e6 * (updated - added) / methods,
        "remove_us_a_method": 1e6 * (removed - reversed_) / methods,
        "longest_add_s": longest, "longest_update_s": longest_update, "reverse_index_s": reversed_ - updated,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", default="/java.base/**.class", help="a pattern of jimage")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(extracted(options.classes, Path(directory)))
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:>22} {value:,.3f}" if value < 1000 else f"{name:>22} {value:,.0f}")


if __name__ == "__main__":
    main()
