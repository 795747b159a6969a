from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import streamer.pipeline.warm
from stages.shed import Shedder
from streamer import config
from streamer.pipeline import boot
from streamer.pipeline.stage_factory import follow
from streamer.pipeline.topology import Place, middle
from streamer.pipeline.warm import Compiling, is_warm, needed, warm


@pytest.mark.parametrize("fidelity", ["ip", "flow"])
def test_every_stage_of_the_chain_is_reached(fidelity: str, tmp_path: Path) -> None:
    place = Place(config.load(fidelity=fidelity), tmp_path, 0)
    assert warm(("decode",), place) > 0
    assert warm(("profile",), place) > 0


def test_a_chain_that_is_there_is_there_without_the_stage_that_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a live run behind a replay would shed all trace until kernels had been compiled that are there."""
    monkeypatch.setattr(streamer.pipeline.warm, "_stamp", lambda chain: tmp_path / "-".join(chain))
    settings = config.load()
    assert not is_warm(needed(settings))
    warm(("profile",), Place(settings, tmp_path, 0))
    assert is_warm(middle(settings))
    assert is_warm(needed(settings))
    assert Compiling(needed(settings)).done()


def test_a_recording_is_no_live_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled by a recording, whose time is not ours: were it shed, nothing would be followed."""
    made: list[Shedder] = []
    monkeypatch.setattr(Shedder, "__init__", lambda self, *_: made.append(self))
    live = Place(config.load(), tmp_path, 0, options={"live": True})
    assert warm(("follow",), live) > 0
    assert not made


def test_only_what_is_live_is_shed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamer.pipeline.warm, "is_warm", lambda _: True)  # else a process begins to compile
    never = config.load(**{"flow.most_behind_seconds": 0})
    places = [(config.load(), True), (config.load(), False), (never, True)]
    stages = [follow(Place(settings, tmp_path, 0, options={"live": live})) for settings, live in places]
    assert [stage.sheds for stage in stages] == [True, False, False]
    assert not follow(Place(config.load(), tmp_path, 0)).sheds


ONLY_OF_KERNELS = {
    "stages.pt.packets.next_packet", "stages.pt.packets.next_context", "stages.pt.packets.reconstruct_ip",
    "stages.pt.scan.last_ip_at", "jvm.code.lookup.site_in", "jvm.code.lookup.slot_of", "jvm.code.lookup.known",
    "jvm.code.lookup.store", "stages.attribute.addresses._slope", "stages.pt.return_stack.call_pushes",
    "stages.recover.guess.likeliest",
}  # fmt: skip
OF_OTHERS = {
    "jvm.bytecode.cfg._graph", "jvm.bytecode.instructions._walk", "stages.cct.merging.add_up",
    "stages.follow.cfg.context.fold", "stages.follow.cfg.context.settle", "stages.follow.walk.path_sequence._blocks",
    "stages.follow.walk.path_sequence._addresses", "stages.follow.walk.path_sequence._varint",
    "stages.follow.walk.path_sequence._pack", "stages.follow.walk.path_sequence._unpack",
    "stages.follow.walk.path_counts.spread",
}  # fmt: skip
"""Kernels that commands and options call which are not the chain of the default settings."""
_NOT_LOADED = """
import sys
from pathlib import Path
from numba.core.registry import CPUDispatcher
from streamer import config
from streamer.pipeline.topology import Place, middle
from streamer.pipeline.warm import warm
settings = config.load(fidelity="flow")
warm(middle(settings), Place(settings, Path(), 0))
for name, module in list(sys.modules.items()):
    for k in list(vars(module).values()) if name.startswith(("stages.", "jvm.")) else ():
        if isinstance(k, CPUDispatcher) and not k.targetoptions.get("no_cpython_wrapper") and not k.overloads:
            print(f"{k.py_func.__module__}.{k.py_func.__name__}")
"""


def test_no_kernel_of_the_chain_is_loaded_in_a_step_of_its_work() -> None:
    said = subprocess.run([sys.executable, "-c", _NOT_LOADED], capture_output=True, text=True, timeout=300, check=True)
    assert set(said.stdout.split()) <= ONLY_OF_KERNELS | OF_OTHERS


def test_stages_of_others_are_left_alone(tmp_path: Path) -> None:
    assert warm(("tests.supervisor.parts:count",), Place(config.load(), tmp_path, 0)) == 0


def test_the_collector_passes_over_what_was_there_before_work_began() -> None:
    """A full round of it is a step of a worker: it must not go through all that was imported."""
    program = "import gc; from streamer.pipeline import worker; worker.freeze_heap(); print(len(gc.get_objects()))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert int(said.stdout) < 1000


def test_what_explains_the_interpreter_is_compiled_behind_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[str, ...]] = []
    over: list[int] = []

    class Process:
        def __init__(self, chain: tuple[str, ...], **_: object) -> None:
            self.number = len(begun)
            begun.append(chain)

        def poll(self) -> int | None:
            return 0 if self.number in over else None

    loaded: list[object] = []

    class Loading:
        def __init__(self, target: object, **_: object) -> None:
            self.target = target

        def start(self) -> None:
            loaded.append(self.target)

        def is_alive(self) -> bool:
            return len(over) < 3

    monkeypatch.setattr(streamer.pipeline.warm, "Thread", Loading)
    monkeypatch.setattr(streamer.pipeline.warm, "is_warm", lambda _: False)
    monkeypatch.setattr(boot, "command", lambda _, *chain: chain)
    monkeypatch.setattr(subprocess, "Popen", Process)
    settings = config.load(fidelity="flow", **{"flow.interpreted": True})
    first = Compiling(needed(settings))
    second = Compiling(middle(settings), first)
    assert "reconstruct" not in needed(settings)
    assert begun == [needed(settings)]
    assert not second.done()
    assert not first.done()
    over.append(0)
    assert first.done()
    assert not second.done()
    assert begun == [needed(settings), middle(settings)]
    over.append(1)
    assert not second.done()  # they are loaded by another thread
    assert len(loaded) == 1
    over.append(2)
    assert second.done()
    assert second.done()
    assert len(loaded) == 1
    assert len(begun) == 2
