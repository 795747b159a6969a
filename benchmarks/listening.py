"""An ear for what the walker is given and says, with nothing of the product replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stages.follow.flow import Flow, FlowOutput
from stages.messages import Segment


@contextmanager
def listening(heard: Callable[[Flow, Segment, list[FlowOutput]], None]) -> Iterator[None]:
    """`heard` is told of each piece at the end of `Flow.steps`."""
    steps = Flow.steps

    def listened(flow: Flow, segment: Segment) -> Iterator[FlowOutput | None]:
        outputs: list[FlowOutput] = []
        for output in steps(flow, segment):
            if output is not None:
                outputs.append(output)
            yield output
        heard(flow, segment, outputs)

    Flow.steps = listened  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Flow.steps = steps  # type: ignore[method-assign]
