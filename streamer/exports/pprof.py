"""A tree as pprof's profile.proto, gzipped (github.com/google/pprof, proto/profile.proto: names and numbers of fields).

Each node with a cost of its own is a sample, with all four weights; the thread is a label. A location is a method: the
tree knows the bytecode index of a call, and no source line.
"""

from __future__ import annotations

import gzip

import numpy as np

from stages.cct.tree import Tree, thread_name
from streamer.exports.protos import messages
from streamer.trees.weights import WEIGHTS, weights

UNITS = {"instructions": "count", "time": "nanoseconds", "invocations": "count", "bytecodes": "count"}

TABLE = {
    "Profile": {
        "sample_type": (1, "ValueType[]"), "sample": (2, "Sample[]"), "mapping": (3, "Mapping[]"),
        "location": (4, "Location[]"), "function": (5, "Function[]"), "string_table": (6, "string[]"),
        "time_nanos": (9, "int64"), "duration_nanos": (10, "int64"), "default_sample_type": (14, "int64"),
    },
    "ValueType": {"type": (1, "int64"), "unit": (2, "int64")},
    "Sample": {"location_id": (1, "uint64[]"), "value": (2, "int64[]"), "label": (3, "Label[]")},
    "Label": {"key": (1, "int64"), "str": (2, "int64"), "num": (3, "int64"), "num_unit": (4, "int64")},
    "Mapping": {"id": (1, "uint64"), "filename": (5, "int64"), "has_functions": (7, "bool")},
    "Location": {"id": (1, "uint64"), "mapping_id": (2, "uint64"), "address": (3, "uint64"), "line": (4, "Line[]")},
    "Line": {"function_id": (1, "uint64"), "line": (2, "int64")},
    "Function": {"id": (1, "uint64"), "name": (2, "int64"), "system_name": (3, "int64"), "filename": (4, "int64")},
}  # fmt: skip
_CLASS = messages("perftools.profiles", TABLE)


def profile(tree: Tree, observed: bool, hz: float, began_ns: int = 0, seconds: float = 0.0) -> bytes:
    """`tree`: threads apart, or not; a root is a thread, and no frame. `began_ns`: since the epoch, where it is known,
    with the length."""
    strings: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    out = _CLASS["Profile"](time_nanos=began_ns, duration_nanos=round(seconds * 1e9))
    for name, unit in UNITS.items():
        out.sample_type.add(type=text(name), unit=text(unit))
    out.default_sample_type = text("instructions")
    out.mapping.add(id=1, filename=text("JVM"), has_functions=True)
    for method, name in enumerate(tree.names, 1):
        out.function.add(id=method, name=text(name), system_name=text(name))
        out.location.add(id=method, mapping_id=1).line.add(function_id=method)
    own = np.stack([weights(tree, name, observed) for name in WEIGHTS], axis=1)
    own[:, list(WEIGHTS).index("time")] = np.rint(own[:, list(WEIGHTS).index("time")] * (1e9 / hz))
    thread, called = text("thread"), text("thread_name")
    paths: list[tuple[int, ...]] = []  # of each node, the innermost location first
    tids: list[tuple[int, str]] = []  # and the threads' names
    for (parent, method, bci), values in zip(
        tree.nodes[["parent", "method", "bci"]].tolist(), own.tolist(), strict=True
    ):
        paths.append((method + 1, *paths[parent]) if parent >= 0 else ())
        tids.append(tids[parent] if parent >= 0 else (bci, thread_name(tree.names[method])))
        if any(values) and parent >= 0:
            sample = out.sample.add(location_id=paths[-1], value=values)
            tid, name = tids[-1]
            if tid >= 0:
                sample.label.add(key=thread, num=tid)
            if name:
                sample.label.add(key=called, str=text(name))
    out.string_table.extend(strings)
    return gzip.compress(out.SerializeToString(deterministic=True), 6, mtime=0)
