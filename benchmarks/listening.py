"""An ear for what the walker is given and says, with nothing of the product replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stages.flow.flow import Flow, FlowOutput
from stages.messages import Segment


@contextmanager
def listening(heard: Callable[[Flow, Segment, list[FlowOutput]], None]) -> Iterator[None]:
    """`heard` is told of each piece right after `Flow.feed`."""
    feed = Flow.feed

    def listened(flow: Flow, segment: Segment, *rest: Any, **named: Any) -> list[FlowOutput]:
        outputs = feed(flow, segment, *rest, **named)
        heard(flow, segment, outputs)
        return outputs

    Flow.feed = listened  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Flow.feed = feed  # type: ignore[method-assign]
