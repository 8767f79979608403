"""A network of one's own for each member, so that it can be cut off: network namespaces on a bridge.

Needs root and ``ip``. Everything is named after this process and removed at the end; what a killed run left is removed
by the next.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

_PREFIX = "tchaos"


def why_not() -> str:
    """Why no namespaces can be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command `ip`"
    probe = f"{_PREFIX}{os.getpid()}-probe"
    try:
        _ip("netns", "add", probe)
        _ip("-n", probe, "link", "add", "br0", "type", "bridge")
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", probe], check=False, capture_output=True)
    return ""


class Network:
    """A bridge in a namespace of its own, and a member namespace for each name. We reach it by a link of our own."""

    def __init__(self) -> None:
        self._base = f"{_PREFIX}{os.getpid()}"
        self._hub = f"{self._base}-hub"
        self._net = f"10.213.{os.getpid() % 250 + 1}"
        self._members: dict[str, int] = {}
        self._link = f"tc{os.getpid()}"[:15]

    def __enter__(self) -> Self:
        _remove_left_overs()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._remove()

    def _make(self) -> None:
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "br0", "up")
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "v0", "netns", self._hub)
        _ip("-n", self._hub, "link", "set", "v0", "master", "br0", "up")
        _ip("addr", "add", f"{self._net}.254/24", "dev", self._link)
        _ip("link", "set", self._link, "up")

    def _remove(self) -> None:
        for name in [*self._members, "hub"]:
            subprocess.run(["ip", "netns", "del", f"{self._base}-{name}"], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._link], check=False, capture_output=True)

    def add(self, name: str) -> tuple[str, str]:
        """A new member: its namespace and its address."""
        number = self._members[name] = len(self._members) + 1
        space, address = f"{self._base}-{name}", f"{self._net}.{number}"
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"v{number}", "netns", self._hub)
        _ip("-n", self._hub, "link", "set", f"v{number}", "master", "br0", "up")
        _ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        return space, address

    def cut(self, name: str) -> None:
        """Nothing reaches the member any more, nor leaves it; its connections stay open and silent."""
        _ip("-n", self._hub, "link", "set", f"v{self._members[name]}", "nomaster")

    def heal(self, name: str) -> None:
        """It is back."""
        _ip("-n", self._hub, "link", "set", f"v{self._members[name]}", "master", "br0")


def _remove_left_overs() -> None:
    listed = subprocess.run(["ip", "netns", "list"], check=False, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        space = line.split(" ")[0]
        pid = space.removeprefix(_PREFIX).partition("-")[0]
        if space.startswith(_PREFIX) and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", space)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
