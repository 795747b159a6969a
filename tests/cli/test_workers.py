"""Workers that have nothing to do, said before the JVM starts."""

from __future__ import annotations

import pytest

from streamer.config import EmulatorConfig, HardwareConfig, Settings, TransportConfig
from streamer.running import idle_workers


@pytest.mark.parametrize(
    ("workers", "emulate", "of_emulator", "of_hardware", "said"),
    [
        (1, True, False, True, None),
        (2, True, False, False, "--per-thread"),
        (2, True, True, True, None),
        (2, False, False, False, None),
        (2, False, True, True, "hardware.per_cpu"),
    ],
)
def test_a_stream_a_cpu_is_one_workers(
    workers: int, emulate: bool, of_emulator: bool, of_hardware: bool, said: str | None
) -> None:
    settings = Settings(
        transport=TransportConfig(workers=workers),
        emulator=EmulatorConfig(per_thread=of_emulator),
        hardware=HardwareConfig(per_cpu=of_hardware),
    )
    line = idle_workers(settings, emulate)
    assert line is None if said is None else said in str(line)
