"""How numba kernels are compiled, and where their machine code is kept.

`kernel` is for functions that Python calls, `inner` for functions that only kernels call: those get no entry from
Python, which takes a third of the time that compiling a small kernel takes. `near` is `inner` written out at each
place of call.

Numba's own cache looks at the source file of a kernel alone, so it goes on using machine code into which an older
version of another module's function was compiled. Here the key is the content of the kernel's module and of all modules
of ours that it imports, however far: a change in a callee is seen, checkouts with the same sources share compiled code,
and no file's time matters. A directory of the cache belongs to one module in one such state; a directory that was not
used for a month is removed when the next one of its module is made.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

from numba import njit, types
from numba.core import config as _config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature

from jvm import sources
from jvm.cbuild import cache_dir

KEPT_SECONDS = 30 * 86_400.0
USED_SECONDS = 86_400.0  # how exactly it is known when a directory was last used

config = cast(Any, _config)  # its settings are made at run time


_NO_ENTRY: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: Any) -> Any:
    """A kernel that Python calls. Compiled at its first call, without the GIL."""
    return _cached(njit(nogil=True)(function))


def inner(function: Any) -> Any:
    """A kernel that only kernels call."""
    return _cached(njit(nogil=True, **_NO_ENTRY)(function))


def apart(function: Any) -> Any:
    """An `inner` that stays a function of its own, as large as it may be, and is compiled once: integers come to it as
    int64, however narrow, and constants too, for each of whose values Numba compiles a version otherwise. (It also
    hands the option of a `near` down to those `inner` ones that are compiled first when it calls them: they are written
    out as well, and theirs.)"""
    dispatcher = njit(nogil=True, forceinline=False, **_NO_ENTRY)(function)
    if config.DISABLE_JIT:
        return dispatcher
    resolve = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, kws: resolve(tuple(map(_wide, args)), kws)
    return _cached(dispatcher)


def _wide(kind: Any) -> Any:
    kind = types.unliteral(kind)  # type: ignore[no-untyped-call]
    return types.int64 if isinstance(kind, types.Integer) and kind not in (types.int64, types.uint64) else kind


def near(function: Any) -> Any:
    """The same, written out where it is called: for the steps of a hot loop."""
    return _cached(njit(nogil=True, forceinline=True, **_NO_ENTRY)(function))


def c_callback(function: Any, signature: str) -> Any:
    """The function as C sees it; `address` says where it lies. Compiled at once."""
    callback = cast(Any, CFunc)(function, cast(Any, normalize_signature)(signature), locals={}, options={})
    callback._cache = _KernelCache(function)  # type: ignore[no-untyped-call]
    callback.compile()
    return callback


@cache
def _digest(module: str) -> str:
    return sources.digest(Path(module))


class _Locator(_CacheLocator):
    """Where the machine code of a module's kernels lies: `<cache>/numba/<module>-<digest>/`."""

    def __init__(self, function: Any, file: str) -> None:
        self._digest = _digest(file)
        self._line = function.__code__.co_firstlineno
        path = Path(file).resolve()
        module = (
            ".".join(path.relative_to(sources.ROOT).with_suffix("").parts)
            if path.is_relative_to(sources.ROOT)
            else path.stem
        )
        base = Path(config.CACHE_DIR) if config.CACHE_DIR else cache_dir() / "numba"
        self._path = base / f"{module}-{self._digest}"

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        with suppress(OSError):  # none yet
            if time.time() - self._path.stat().st_mtime > USED_SECONDS:
                self._path.touch()
        return str(self._path)

    def ensure_cache_path(self) -> None:
        if not self._path.is_dir():
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._forget()

    def _forget(self) -> None:
        """Removes directories of this module that were not used lately."""
        module = self._path.name.rpartition("-")[0]
        for other in self._path.parent.glob(f"{module}-*"):
            with suppress(OSError):
                if other.name.rpartition("-")[0] == module and time.time() - other.stat().st_mtime > KEPT_SECONDS:
                    shutil.rmtree(other)

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Impl(CompileResultCacheImpl):
    _locator_classes: list[type[object]] = [_Locator]  # noqa: RUF012


class _KernelCache(FunctionCache):
    """A cache that cannot be written or read (full disk, foreign file) costs time, nothing else."""

    _impl_class = _Impl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # of any kind: pickle reads any bytes that stand there
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def _cached(dispatcher: Any) -> Any:
    if not config.DISABLE_JIT:
        dispatcher._cache = _KernelCache(dispatcher.py_func)  # type: ignore[no-untyped-call]
    return dispatcher
