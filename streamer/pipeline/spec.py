"""A member's place in the pipeline: its stages, its senders, and its receivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamer.config import Settings
from streamer.pipeline.topology import Place
from streamer.transport.control import Words
from streamer.transport.transport import Address


@dataclass(frozen=True)
class Spec:
    """Of one incarnation of a member. Members are called `group/index`."""

    group: str
    index: int
    workers: int  # of the group
    incarnation: int
    stages: tuple[str, ...]
    options: Mapping[str, Any]
    directory: str
    settings: Mapping[str, Any]
    address: Address | None  # None: a source
    upstream: tuple[str, ...]  # members that will send
    ended: tuple[str, ...]  # those of them that have ended for good already
    downstream: tuple[Address, ...]
    down: tuple[int, ...]  # those of them that are not there now
    gone: tuple[int, ...]  # … and will not come back

    @property
    def member(self) -> str:
        return f"{self.group}/{self.index}"

    @property
    def name(self) -> str:
        """Names the incarnation, so that numbers begin anew with it."""
        return f"{self.member}#{self.incarnation}"

    def words(self) -> Words:
        return asdict(self)

    @classmethod
    def of(cls, words: Words) -> Spec:
        words = {k: tuple(v) if isinstance(v, list) else v for k, v in words.items() if k != "do"}
        words["address"] = Address(*words["address"]) if words["address"] else None
        words["downstream"] = tuple(Address(*a) for a in words["downstream"])
        return cls(**words)

    def place(self) -> Place:
        return Place(Settings(**self.settings), Path(self.directory), self.index, self.incarnation, dict(self.options))
