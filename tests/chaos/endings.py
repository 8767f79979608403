"""How processes end that were asked to (SIGTERM): in time, by the exit codes that README promises, and with nothing left behind.

0: every body had ended. 3: the server was not there. 4: bodies were given up: such as do
not end when they are told to, or all whose outcome no server took. One that was not ready yet may be without its
handlers, or still look for its server. Workers and supervisors are judged, and the programs that ask, which know no other end than 0.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from tenure.cli.problems import Exit
from tests.history.evidence import Death, Evidence, Fault, Violation
from tests.history.known import Body, bodies_of

RECOVERY_SECONDS = 10.0
"""So long after a fault of the servers is over it may still be felt: an election, a reconnect that backs off."""
_NOT_READY = {Exit.OK, Exit.UNAVAILABLE, -signal.SIGTERM}
_HEARS_NOTHING = "stubborn"
"""The actor whose bodies do not end when they are told to."""


def check_endings(evidence: Evidence, faults: list[Fault]) -> Iterator[Violation]:
    """Every end that was not in order."""
    bodies: dict[int, list[Body]] = {}
    for body in bodies_of(evidence):
        if not body.start.child:  # those that are not obeyed are killed
            bodies.setdefault(body.start.pid, []).append(body)
    for death in evidence.deaths:
        why = _not_in_order(death, bodies.get(death.pid, []), faults) if death.asked_at else ""
        if why:
            yield Violation("ends in order", death.name, f"process {death.pid} {why}")


def _not_in_order(death: Death, bodies: list[Body], faults: list[Fault]) -> str:
    code = f"ended with {death.code} {death.at - death.asked_at:.1f} s after SIGTERM"
    cut_off = troubled(death, faults)
    if death.how == "kill":
        return (
            ""
            if cut_off or not death.ready
            else f"did not end within {death.killed_at - death.asked_at:.1f} s of SIGTERM"
        )
    if death.role not in {"worker", "supervisor"}:
        return "" if death.code in {0, -signal.SIGTERM} else code
    if not death.ready:
        known = death.code in _NOT_READY or (death.code == Exit.GIVEN_UP and cut_off)
        return "" if known else f"{code}, before it was ready"
    open_bodies = [body.start for body in bodies if body.end is None]
    match death.code:
        case Exit.OK if open_bodies:
            return f"{code}, and bodies of it had not ended: {', '.join(line.key for line in open_bodies[:5])}"
        case Exit.OK:
            return ""
        case Exit.UNAVAILABLE:
            return "" if cut_off else f"{code}: nothing was wrong with its server"
        case Exit.GIVEN_UP if death.role == "worker":
            kept_on = any(body.start.actor == _HEARS_NOTHING and body.until > death.asked_at for body in bodies)
            return (
                "" if kept_on or cut_off else f"{code}: none of its bodies was one that does not end when it is told to"
            )
        case _:
            return code


def troubled(death: Death, faults: list[Fault]) -> bool:
    """Whether the server may have been away from a process that was ending, or it was cut off from that."""
    return any(
        fault.at <= death.at and death.asked_at <= fault.until + RECOVERY_SECONDS
        for fault in faults
        if fault.target == "server" or (fault.target == death.name and fault.kind == "cut")
    )


def left_behind(folder: Path) -> Iterator[Violation]:
    """Processes that were started for this run by others than us, after all of ours have ended."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if f"CHAOS_FOLDER={folder}".encode() in (path / "environ").read_bytes().split(b"\0"):
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield Violation("nothing left behind", path.name, f"still runs: {command[:120]}")
