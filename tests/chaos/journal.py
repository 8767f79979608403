"""A process's own log: one JSON line per event, written at once with O_APPEND, so that a kill -9 loses at most one line."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

Line = TypeVar("Line", bound=Struct)


class Journal:
    """Appends lines to ``<folder>/<name>-<pid>.jsonl``."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}-{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, line: Struct) -> None:
        """One write call a line: whole or, at the very moment of a kill, cut."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def read(path: Path, kind: type[Line]) -> Iterator[Line]:
    """Every whole line of a log; one that a kill has cut is passed over."""
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        for line in file:
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError:
                if line.endswith(b"\n"):
                    raise


def steady() -> float:
    """Seconds on the clock that all processes of this machine share and that never goes back."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
