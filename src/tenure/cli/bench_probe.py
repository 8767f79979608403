"""What the benchmark reads without asking the server: when bodies started, and what a process costs.

A worker notes the start of each body in a memory-mapped file, so that watching costs neither the server nor a
connection anything. CPU time and memory of other processes come from the kernel; where there is no such source (not
Linux) they are NaN.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from pathlib import Path

_RECORD = struct.Struct("<dq")
_PAGE = 4_096


class Stamps:
    """A file of (seconds since the epoch, number) records, written by one worker and read by the benchmark."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._next = 0
        self._read: list[tuple[float, int]] = []

    @classmethod
    def create(cls, path: Path, room: int) -> Stamps:
        """Make a file with room for at least that many records."""
        with path.open("wb") as file:
            file.truncate((room * _RECORD.size // _PAGE + 1) * _PAGE)
        return cls(path)

    def note(self, number: int) -> None:
        """Note that the body of ``number`` (>= 0) starts now. Raises struct.error once the file is full."""
        _RECORD.pack_into(self._map, self._next * _RECORD.size, time.time(), number + 1)
        self._next += 1

    def read(self) -> list[tuple[float, int]]:
        """Everything noted so far, in order."""
        room = len(self._map) // _RECORD.size
        while len(self._read) < room:
            at, number = _RECORD.unpack_from(self._map, len(self._read) * _RECORD.size)
            if not number or not at:
                break
            self._read.append((at, number - 1))
        return self._read

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, its ended threads included."""
    if sys.platform != "linux":
        return float("nan")
    return time.clock_gettime(
        (~pid << 3) | 2
    )  # the kernel's name for "CPU time of process pid"; nanoseconds, not ticks


def rss_megabytes(pid: int) -> float:
    """Resident memory of a process, in MB of 2**20 bytes."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except FileNotFoundError:
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def percentile(values: list[float], percent: float) -> float:
    """Linear between the two nearest values; NaN of nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100.0
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
