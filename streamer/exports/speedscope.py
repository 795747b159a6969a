"""A tree as speedscope's file (its documented format "sampled": stacks with weights), one profile for each weight."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from stages.cct.tree import Tree
from streamer.trees.text import label
from streamer.trees.weights import WEIGHTS, weights

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def profile(tree: Tree, observed: bool, hz: float, name: str) -> bytes:
    """Roots are frames if there are several. Weights of which there are none have no profile."""
    parent = tree.nodes["parent"].tolist()
    roots = sum(up < 0 for up in parent) > 1
    frames: dict[str, int] = {}
    stacks: list[tuple[int, ...]] = []
    for node, up in enumerate(parent):
        above = stacks[up] if up >= 0 else ()
        own = (frames.setdefault(label(tree, node), len(frames)),) if up >= 0 or roots else ()
        stacks.append((*above, *own))
    profiles: list[dict[str, Any]] = []
    for weight in WEIGHTS:
        own_weights = weights(tree, weight, observed)
        of = np.flatnonzero(own_weights)
        values = (own_weights[of] / hz).tolist() if weight == "time" else own_weights[of].tolist()
        if values:
            profiles.append({
                "type": "sampled", "name": f"{name}: {weight}", "unit": "seconds" if weight == "time" else "none",
                "startValue": 0, "endValue": sum(values), "samples": [stacks[n] for n in of.tolist()],
                "weights": values,
            })  # fmt: skip
    shared = {"frames": [{"name": frame} for frame in frames]}
    return json.dumps({"$schema": SCHEMA, "name": name, "shared": shared, "profiles": profiles}).encode()
