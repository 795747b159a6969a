"""Intel PT of the processor, by perf_event_open(2): one event a thread of the traced process, or one a CPU.

The rings are the kernel's own mappings, read as any others. A lack of the machine or the kernel is a `HardwareError`
that names the remedy.

IP filter: perf takes address filters in user space only with a file behind the range, which the code cache has not.
A filter without a file counts as one of the kernel; newer kernels (5.18 on) accept any address in it, then it needs
`exclude_kernel=0`. So that is tried first, and without filter the trace has everything in user space.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path

from capture.live.ring import AUX_OFFSET, AUX_SIZE, ENDED, PAGE, PerfRing
from capture.live.source import FoundRing, process_start
from capture.perf import perf_data as perfdata
from capture.perf.records import SAMPLE_TYPE
from jvm.faults import ExpectedError
from stages.messages import PtConfig, StreamKey

PMU = Path("/sys/bus/event_source/devices/intel_pt")
SYS_PERF_EVENT_OPEN = {"x86_64": 298}
FLAG_FD_CLOEXEC = 1 << 3
IOC_ENABLE, IOC_DISABLE, IOC_SET_FILTER = 0x2400, 0x2401, 0x40082406  # _IO('$', 0), _IO('$', 1), _IOW('$', 6, char *)
SOFTWARE, DUMMY = 1, 9

# bit fields of perf_event_attr
DISABLED, EXCLUDE_KERNEL, EXCLUDE_HV, MMAP, COMM, TASK, SAMPLE_ID_ALL, MMAP2, CONTEXT_SWITCH = (
    1 << bit for bit in (0, 5, 6, 8, 9, 13, 18, 23, 26)
)
FLAGS = DISABLED | EXCLUDE_HV | MMAP | COMM | TASK | SAMPLE_ID_ALL | MMAP2 | CONTEXT_SWITCH

_libc = ctypes.CDLL(None, use_errno=True)
MTC_PERIOD = 3  # perf's default: an MTC each 2^3 ticks of the crystal clock


class HardwareError(ExpectedError):
    """This machine, kernel or user cannot trace so; one line with the cause and the remedy."""


class EventRing(PerfRing):
    """The ring of a perf event; closes the event with itself."""

    def __init__(self, name: str, fd: int, base: mmap.mmap, aux: mmap.mmap | None, task: Path | None) -> None:
        super().__init__(name, base, aux)
        self.fd, self._task = fd, task

    def counter(self, word: int) -> int:
        """A thread's ring has ended with the thread."""
        return int(word == ENDED and self._task is not None and not self._task.exists())

    def switch(self, on: bool) -> bool:
        """As the kernel returns the event has stopped, on any CPU, and the bytes it wrote are committed."""
        fcntl.ioctl(self.fd, IOC_ENABLE if on else IOC_DISABLE)
        return not on

    def close(self) -> None:
        super().close()
        os.close(self.fd)


def open_event(kind: int, config: int, flags: int, pid: int, cpu: int) -> int:
    """perf_event_open for (pid, cpu), one of them −1; a file descriptor. Raises HardwareError."""
    number = SYS_PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        raise HardwareError(f"Intel PT on {platform.machine()}: there is none")
    attr = ctypes.create_string_buffer(perfdata.attribute(kind, config, SAMPLE_TYPE, flags), perfdata.ATTR_SIZE)
    fd = _perf_event_open(number, attr, pid, cpu)
    if fd < 0:
        raise _error(ctypes.get_errno(), pid)
    return fd


def _perf_event_open(number: int, attr: ctypes.Array[ctypes.c_char], pid: int, cpu: int) -> int:
    return int(_libc.syscall(number, attr, pid, cpu, -1, FLAG_FD_CLOEXEC))


def check(pmu: Path | None = None) -> None:
    """Raises HardwareError if this machine, kernel or user cannot trace an own process."""
    os.close(open_event(_pmu_type(pmu or PMU), perfdata.pt_config_bits(PtConfig()), FLAGS | EXCLUDE_KERNEL, 0, -1))


def _error(number: int, pid: int) -> HardwareError:
    if number in (errno.EACCES, errno.EPERM):
        try:
            level = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
        except OSError:
            level = "unknown"
        return HardwareError(
            f"perf events are not permitted (kernel.perf_event_paranoid is {level}): run with CAP_PERFMON, "
            "or lower it with sysctl"
        )
    if number == errno.ESRCH:
        return HardwareError(f"no process or thread {pid}")
    if number == errno.EBUSY:
        return HardwareError("Intel PT is in use by another program")
    if number == errno.EMFILE:
        return HardwareError("too many open files for one event a thread: raise ulimit -n, or trace by CPU")
    return HardwareError(f"perf_event_open: {os.strerror(number)}")


def map_event(fd: int, name: str, data_size: int, aux_size: int, task: Path | None = None) -> EventRing:
    """Maps the rings of an event; sizes are powers of two of pages, `aux_size` 0 for events without trace. The fd
    belongs to the ring from now on. Raises HardwareError."""
    try:
        base = mmap.mmap(fd, PAGE + data_size)
        aux = None
        if aux_size:
            offset = PAGE + data_size
            struct.pack_into("<Q", base, AUX_OFFSET, offset)
            struct.pack_into("<Q", base, AUX_SIZE, aux_size)
            aux = mmap.mmap(fd, aux_size, offset=offset)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EPERM, errno.ENOMEM):
            raise HardwareError(
                f"{name}: {(data_size + aux_size) >> 10} KiB of ring are more than this user may lock: smaller rings, "
                "or raise kernel.perf_event_mlock_kb"
            ) from error
        raise HardwareError(f"{name}: cannot map the ring: {error.strerror}") from error
    return EventRing(name, fd, base, aux, task)


class HardwareSource:
    """Intel PT of the threads of `pid`, present and future, or of all CPUs (with every process there)."""

    lasting = False

    def __init__(
        self,
        pid: int,
        host: str,
        code: tuple[int, int],
        *,
        per_thread: bool = True,
        aux_size: int = 4 << 20,
        data_size: int = 512 << 10,
        pmu: Path | None = None,
    ) -> None:
        """`code`: range of the code cache, for the IP filter. Raises HardwareError when there is no Intel PT, no such
        process, or no permission. `pmu`: its directory in sysfs."""
        self.pid, self.host, self.faults = pid, host, list[str]()
        self.sample_type = SAMPLE_TYPE
        pmu = pmu or PMU
        self._type = _pmu_type(pmu)
        self._start = process_start(pid)
        if self._start == 0:
            raise HardwareError(f"no process {pid}")
        self._code, self._sizes, self._per_thread = code, (data_size, aux_size), per_thread
        self.filtered = True  # as long as the kernel takes the filter
        self._threads: set[str] = set()
        family, model = _cpu()
        self._made = _timing(pmu)._replace(family=family, model=model)
        self._first = list(self._open_all())

    def config(self) -> PtConfig:
        low, high = self._code if self.filtered else (0, 0)
        return self._made._replace(filter_lo=low, filter_hi=high)

    def wall_zero(self) -> None:
        return None

    def new_rings(self) -> Iterator[FoundRing]:
        yield from self._first
        self._first = []
        if self._per_thread and process_start(self.pid) == self._start:
            try:
                yield from self._open_all()
            except HardwareError as error:
                if str(error) not in self.faults:
                    self.faults.append(str(error))

    def ended(self) -> bool:
        return process_start(self.pid) != self._start

    def _open_all(self) -> Iterator[FoundRing]:
        if not self._per_thread:
            for cpu in sorted(os.sched_getaffinity(0)):
                yield FoundRing(StreamKey(self.host, self.pid, cpu, -1), self._open(-1, cpu, f"cpu {cpu}", None))
            return
        tasks = Path(f"/proc/{self.pid}/task")
        try:
            names = {entry.name for entry in os.scandir(tasks)}
        except FileNotFoundError:
            return
        new = names - self._threads
        self._threads = names
        for name in sorted(new, key=int):
            try:
                ring = self._open(int(name), -1, f"thread {name}", tasks / name)
            except HardwareError:
                if (tasks / name).exists():
                    raise
                continue  # it is gone already
            # thread ids come again: when it was started tells it from others, also in the next process that drains it
            yield FoundRing(StreamKey(self.host, self.pid, -1, int(name), process_start(int(name))), ring)

    def _open(self, tid: int, cpu: int, name: str, task: Path | None) -> EventRing:
        bits = perfdata.pt_config_bits(self._made)
        low, high = self._code
        if self.filtered:
            fd = -1
            try:
                fd = open_event(self._type, bits, FLAGS, tid, cpu)
                fcntl.ioctl(fd, IOC_SET_FILTER, f"filter {low:#x}/{high - low:#x}\0".encode())
            except (HardwareError, OSError):
                if fd >= 0:
                    os.close(fd)
                self.filtered = False
        if not self.filtered:
            fd = open_event(self._type, bits, FLAGS | EXCLUDE_KERNEL, tid, cpu)
        ring = map_event(fd, name, *self._sizes, task)
        fcntl.ioctl(fd, IOC_ENABLE)
        return ring


def _pmu_type(pmu: Path) -> int:
    try:
        return int((pmu / "type").read_text())
    except FileNotFoundError:
        raise HardwareError(
            f"this machine has no Intel PT (no {pmu}): an Intel processor from Broadwell on, not in most virtual "
            "machines; without it use the emulated PT"
        ) from None
    except (OSError, ValueError) as error:
        raise HardwareError(f"{pmu}/type: {error}") from error


def _timing(pmu: Path) -> PtConfig:
    """With MTC packets, if the processor has them and the kernel tells how their clock relates to the TSC."""
    try:
        if (pmu / "caps/mtc").read_text().strip() != "1":
            return PtConfig()
        periods = int((pmu / "caps/mtc_periods").read_text(), 16)
        tsc, crystal = map(int, (pmu / "tsc_art_ratio").read_text().split(":"))
    except (OSError, ValueError):
        return PtConfig()
    if not periods >> MTC_PERIOD & 1 or tsc <= 0 or crystal <= 0:
        return PtConfig()
    return PtConfig(mtc_shift=MTC_PERIOD, ctc_num=tsc, ctc_den=crystal)


def _cpu() -> tuple[int, int]:
    """Family and model, for errata; (0, 0) if it is no processor of Intel's."""
    found: dict[str, str] = {}
    with Path("/proc/cpuinfo").open() as file:
        for line in file:
            name, _, value = line.partition(":")
            if not line.strip():
                break
            found[name.strip()] = value.strip()
    if found.get("vendor_id") != "GenuineIntel":
        return 0, 0
    return int(found.get("cpu family", 0)), int(found.get("model", 0))
