"""The stages of a worker, made as tests need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stages.attribute.stage import Attribute
from stages.cct.stage import Cct
from stages.decode import stage as decode
from stages.follow.stage import Follow
from stages.images import Images
from stages.profile.stage import Profile
from stages.ready.stage import Ready
from stages.segment import stage as segment


def ip(images: Images | None = None, *, pane_ticks: int = 0, max_held: int = 128 << 20) -> list[Any]:
    """Fidelity `ip`, in one process."""
    images = images or Images()
    return [
        decode.make(), segment.make(), Ready(images, max_held=max_held), Attribute(images, pane_ticks=pane_ticks),
        Profile(images=images, pane_ticks=pane_ticks),
    ]  # fmt: skip


def flow(
    *,
    now: Callable[[], int] | None = None,
    most_behind_seconds: float = 0.25,
    followable: Callable[[], bool] | None = None,
) -> list[Any]:
    """Fidelity `flow`, in one process."""
    images = Images(0.5)
    follow = Follow(images, now=now, most_behind_seconds=most_behind_seconds, followable=followable)
    return [
        decode.make(), segment.make(), Ready(images), follow, Cct(images=images), Attribute(images),
        Profile(images=images),
    ]  # fmt: skip
