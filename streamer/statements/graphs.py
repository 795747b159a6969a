"""Methods as `stages.statements` asks for them: graphs of the stage `reconstruct`, source lines of class files."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.cfg import Cfg
from stages.images import Images
from stages.reconstruct.classes import Classes


class Methods:
    """`stages.statements.methods.Graphs`, of one process: graph and class files."""

    def __init__(self, classes: Classes, images: Images, host: str, pid: int) -> None:
        self._classes, self._files = classes, images.of(host, pid).image.classes

    @property
    def numbers(self) -> NDArray[np.int32]:
        return self._classes.numbers

    def selector(self, method: int) -> tuple[str, str, str]:
        return self._classes.selector(method)

    def cfg(self, method: int) -> Cfg | None:
        return self._classes.cfg(method)

    def lines(self, method: int) -> NDArray[np.void]:
        _, name, descriptor = self._classes.selector(method)
        return self._files.lines(self._classes.class_id(method), name, descriptor)
