"""The return stack, against which near RETs are compressed (SDM vol. 3, "RET Compression").

64 entries, of which the oldest falls off; every near RET pops, compressed or not. Each walker keeps it in its own form
(addresses, blocks, a ring, a list), so that here stands only on what all of them must agree.
"""

from __future__ import annotations

from typing import Any

from jvm.kernels import kernel

DEPTH = 64


@kernel
def call_pushes(target: Any, after: Any) -> Any:
    """Whether a near direct CALL to `target` pushes `after`, the address behind it. CALL +0 does not: it only asks
    where it stands, and has no RET."""
    return target != after
