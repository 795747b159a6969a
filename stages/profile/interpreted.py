"""Rows of methods in place of the interpreter's templates, as far as it is known for which method these ran.

The execution of the blocks that are known is taken from the sums of the templates' sites and given to the methods:
their instructions, invocations and bytecodes are told, and the ticks of a group's known blocks are shared by
instructions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.code.sites import SiteKind, Sites
from stages.messages import Bytecodes
from stages.paths.counts import Executed
from stages.profile.contents import BYTECODES, INSTRUCTIONS, INVOCATIONS, Sums

I64 = NDArray[np.int64]
BEHIND = "[interpreter] not explained: behind"
"""In place of the templates' names where the methods were not looked for (`Bytecodes.behind`): so each table says how
much that is."""


def known_part(message: Bytecodes, all_: Executed) -> Executed:
    """The execution for methods that are known, of all. Its ticks are its part of each block's."""
    known = message.known
    concerns = np.zeros(max(int(part.max(initial=-1)) for part in (known["block"], all_.block)) + 1, np.bool_)
    concerns[known["block"]] = True
    some = np.flatnonzero(concerns[all_.block])  # few
    keys, where = np.unique(all_.group[some].astype(np.int64) << 32 | all_.block[some], return_inverse=True)
    times, ticks = np.zeros(len(keys), np.int64), np.zeros(len(keys))
    np.add.at(times, where, all_.times[some])
    np.add.at(ticks, where, all_.ticks[some])
    wanted = known["group"].astype(np.int64) << 32 | known["block"].astype(np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    there = keys[at] == wanted if len(keys) else np.zeros(0, np.bool_)
    rows, at = known[there], at[there]
    ran = np.minimum(rows["times"], times[at])
    return Executed(
        rows["group"].copy(), rows["block"].astype(np.int64), np.zeros(len(rows), np.int32), ran,
        ticks[at] * ran / np.maximum(times[at], 1),
    )  # fmt: skip


def with_methods(all_: Sums, known: Sums, message: Bytecodes, site_of_method: I64) -> Sums:
    """`all_` without `known`, and with the rows of the methods; `site_of_method`: of each row of `message.methods`."""
    m = message.methods
    group = m["group"].astype(np.int64)
    counts = np.zeros((len(m), all_.counts.shape[1]), np.int64)
    counts[:, INSTRUCTIONS], counts[:, INVOCATIONS] = m["instructions"], m["invocations"]
    counts[:, BYTECODES] = m["bytecodes"]
    groups = int(max(group.max(initial=-1), known.group.max(initial=-1))) + 1
    ticks, total = np.zeros(groups), np.zeros(groups, np.int64)
    np.add.at(ticks, known.group, known.ticks)
    np.add.at(total, group, m["instructions"])
    mine = ticks[group] * m["instructions"] / np.maximum(total[group], 1)
    key = np.concatenate([part.group << 32 | part.site for part in (all_, known)] + [group << 32 | site_of_method])
    in_order = np.argsort(key, kind="stable")
    key = key[in_order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    sums = np.add.reduceat(np.concatenate((all_.counts, -known.counts, counts))[in_order], first, axis=0)
    spent = np.add.reduceat(np.concatenate((all_.ticks, -known.ticks, mine))[in_order], first)
    left = (sums != 0).any(axis=1) | (spent > 0.5)
    keys = key[first[left]]
    return Sums(keys >> 32, keys & 0xFFFFFFFF, sums[left], np.maximum(spent[left], 0.0))


def unexplained(all_: Sums, sites: Sites) -> Sums:
    """`all_`, with the templates' sites as one that says that nothing was looked for."""
    templates = [s for s in np.unique(all_.site).tolist() if sites.kind_of[s] == SiteKind.INTERPRETED]
    folded = all_.site.copy()
    folded[np.isin(folded, templates)] = sites.site(BEHIND, SiteKind.INTERPRETED)
    return all_._replace(site=folded)
