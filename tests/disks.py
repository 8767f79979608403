"""Disks that lose power: what the kernel had not written to them yet is gone, as no ``kill -9`` can have it.

Each is an ext4 file system in a file, mounted over a loop device. What that file holds is what a disk would hold, the rest
is in the kernel's memory; so a copy of the file is the disk after a power cut. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

_BYTES = 96 << 20


def why_not() -> str:
    """Why no disks can be made here; empty if they can."""
    if os.geteuid() != 0:
        return "disks of one's own need root"
    if (missing := [name for name in ("mkfs.ext4", "mount") if shutil.which(name) is None]) != []:
        return f"disks of one's own need {' and '.join(missing)}"
    with tempfile.TemporaryDirectory() as folder, Disks([Path(folder) / "probe"]) as disks:
        return disks.why_not


class Disks:
    """One mounted at each of ``places``, which it makes; unmounted at the end."""

    def __init__(self, places: list[Path]) -> None:
        self._places = places
        self._stack = contextlib.ExitStack()
        self._lost: list[Path] = []
        self.why_not = ""

    def __enter__(self) -> Self:
        for place in self._places:
            place.mkdir()
            with self._image(place).open("wb") as image:
                image.truncate(_BYTES)
            _run("mkfs.ext4", "-q", str(self._image(place)))
        try:
            for place in self._places:
                self._mount(place)
                self._stack.callback(_run, "umount", "--lazy", str(place))
        except subprocess.CalledProcessError as error:
            self.why_not = f"nothing can be mounted here: {error.stderr.strip()}"
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def lose_power(self, which: list[int] | None = None) -> None:
        """At once. Whoever writes there must stand still, and must have been killed when ``come_back`` is called."""
        self._lost = [self._places[number] for number in (which or range(len(self._places)))]
        for place in self._lost:
            shutil.copyfile(self._image(place), self._image(place).with_suffix(".held"))

    def come_back(self) -> None:
        """What was on those that lost power is there again, and no more."""
        for place in self._lost:
            _run("umount", str(place))
            self._image(place).with_suffix(".held").rename(self._image(place))
            self._mount(place)

    def _image(self, place: Path) -> Path:
        return place.with_suffix(".img")

    def _mount(self, place: Path) -> None:
        _run("mount", "-o", "loop", str(self._image(place)), str(place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
