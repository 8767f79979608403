"""The examination behind ``doctor``: one finding after the other, each from what the server tells now."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from tenure.app import App
from tenure.cli.repair import gone_by
from tenure.client import Client
from tenure.clock import SYSTEM, AlignedClock, here
from tenure.core.errors import ConfigError, TenureError, Unavailable
from tenure.nats.connection import ApiError, Connection, Lost, NotSent, WrongServer
from tenure.nats.rights import Rights, rights_of
from tenure.nats.roles import CONNECTED, TOLD, needs
from tenure.nats.topology import Topology, differences
from tenure.nats.urls import without_secrets
from tenure.overview import QueueRow, SessionRow, queue_rows, schedules_unknown, session_rows, span
from tenure.stores import Stores
from tenure.supervisor.suspects import Suspect, suspects

State = Literal["ok", "note", "wrong", "down"]
_LEAST_SECONDS = 0.001
"""What is shown of less."""
_NOTED_SECONDS, _WRONG_SECONDS = 0.25, 2.0
"""Differences of clocks: processes align themselves to the server's, but people and other programs do not."""
_FULL = 0.9
_NAMED = 3
_SETUP = "run `tenure setup`"
_ROLES = "`tenure permissions` prints what each role needs"


class Finding(Struct, frozen=True):
    """What one look found. ``todo``: what to do about it."""

    check: str
    state: State
    text: str
    todo: str = ""


async def examine(app: App, url: str, role: str | None, stuck_after: float) -> list[Finding]:
    """Everything that can be looked at, in the order in which one thing needs the other."""
    found: list[Finding] = []
    try:
        conn = await Connection.open(url, app.config, name=f"tenure-doctor-{app.namespace}")
    except TenureError as error:
        return [_refused("server", error)]
    try:
        found += await _server(conn, url)
        rights = await rights_of(conn)
        found += _rights(rights, conn, app, role)
        topology = await differences(conn, app.names, app.config)
        found += list(_streams(topology, app.namespace))
        if topology.incarnation and all(change.did != "missing" for change in topology.changes[:6]):
            found += [await _clock(conn, app.names.runs_stream)]
            if rights is None or not _lacking(rights, conn, app)["viewer"]:
                found += await _life(app, conn, topology, stuck_after)
            else:
                found.append(Finding("runs", "note", "not looked at: this user may not", "use a viewer's credentials"))
    except TenureError as error:
        found.append(_refused("look", error))
    finally:
        await conn.close()
    return found


def _refused(check: str, error: TenureError) -> Finding:
    down = isinstance(error, Unavailable)
    if isinstance(error, WrongServer):
        todo = "have that server upgraded, or JetStream switched on there; or say with --url or $TENURE_NATS_URL another one"
    elif check == "server":
        todo = f"say with --url or $TENURE_NATS_URL {'where it is' if down else 'which server, and whom to connect as'}"
    else:
        todo = "ask again; the server's own log says more" if down else _ROLES
    return Finding(check, "down" if down else "wrong", str(error), todo)


# -- the server ------------------------------------------------------------------------------------------------------


async def _server(conn: Connection, url: str) -> list[Finding]:
    sent = time.perf_counter()
    info = await _asked(conn, "INFO")
    took = time.perf_counter() - sent
    answers = f"answers in {span(max(took, _LEAST_SECONDS))}"
    found = [Finding("server", "ok", f"nats-server {conn.server_version} at {without_secrets(url)}, {answers}")]
    used, most = int(info.get("storage", 0)), int(info.get("limits", {}).get("max_storage", -1))
    text = f"{_bytes(used)} stored by this account" + (f" of {_bytes(most)}" if most > 0 else "")
    full = 0 < most <= used / _FULL
    found.append(Finding("jetstream", "wrong" if full else "ok", text, "raise max_file of the account" if full else ""))
    return found


async def _asked(conn: Connection, call: str) -> dict[str, Any]:
    try:
        answer = await conn.api(call, {})
    except (NotSent, Lost) as error:
        raise Unavailable(f"JetStream does not answer {call}: {error}") from error
    if isinstance(answer, ApiError):
        raise ConfigError(f"{call}: {answer.description}")
    return answer


def _lacking(rights: Rights, conn: Connection, app: App) -> dict[str, list[str]]:
    """By role, in words, what this user may not do."""
    lacking: dict[str, list[str]] = {name: [] for name in CONNECTED}
    for need in needs(app.names, conn.new_inbox()):
        if need.role in lacking and not rights.may(need.verb, need.subject):
            lacking[need.role].append(str(need))
    return lacking


def _rights(rights: Rights | None, conn: Connection, app: App, role: str | None) -> list[Finding]:
    if rights is None:
        return [Finding("permissions", "note", "the server does not tell what this user may do",
                        f"allow it to publish {TOLD}")]  # fmt: skip
    who = f"user {rights.user!r} of account {rights.account}" if rights.user else f"account {rights.account}"
    if rights.permissions is None:
        return [Finding("permissions", "ok", f"{who}: everything is permitted")]
    lacking = _lacking(rights, conn, app)
    enough = [name for name, words in lacking.items() if not words]
    found = [Finding("permissions", "ok", f"{who}: enough for {', '.join(enough)}") if enough else
             Finding("permissions", "note", f"{who}: enough for no role", _ROLES)]  # fmt: skip
    others = [name for name, words in lacking.items() if words and name != role]
    if others:
        found.append(
            Finding("permissions", "note", f"not enough for {', '.join(others)}", "--role says what is missing")
        )
    if role is not None and lacking[role]:
        found.append(
            Finding("permissions", "wrong", f"not enough for {role}, which must {', '.join(lacking[role])}", _ROLES)
        )
    return found


def _streams(topology: Topology, namespace: str) -> Iterator[Finding]:
    missing = [change.stream for change in topology.changes if change.did == "missing"]
    if missing and len(missing) == len(topology.changes):
        yield Finding("streams", "wrong", f"namespace {namespace!r} is not set up", _SETUP)
        return
    if not topology.incarnation and topology.changes[0].stream not in missing:
        yield Finding(
            "streams", "wrong", f"{topology.changes[0].stream} was not made by Tenure", "use another namespace"
        )
    for stream in missing:
        yield Finding("streams", "wrong", f"{stream} is missing", _SETUP)
    differing = [change for change in topology.changes if change.did == "differs"]
    for change in differing:
        yield Finding(
            "streams", "wrong", f"{change.stream}: {'; '.join(change.details)}", f"{_SETUP}, which says whether it can"
        )
    if not missing and not differing:
        yield Finding("streams", "ok", f"{len(topology.changes)} streams and buckets are as they must be")


async def _clock(conn: Connection, stream: str) -> Finding:
    before = SYSTEM.now()
    info = await _asked(conn, f"STREAM.INFO.{stream}")
    after = SYSTEM.now()
    ahead = (before + after) / 2 - datetime.fromisoformat(str(info["ts"])).timestamp()
    unsure = (after - before) / 2
    off = max(0.0, abs(ahead) - unsure)
    if off < _NOTED_SECONDS:
        agreed = span(max(abs(ahead), _LEAST_SECONDS))
        return Finding("clock", "ok", f"this machine's clock and the server's agree to within {agreed}")
    text = f"this machine's clock is {span(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the server's"
    return Finding("clock", "wrong" if off > _WRONG_SECONDS else "note", text, "have both set by NTP")


# -- what lives in it ------------------------------------------------------------------------------------------------


async def _life(app: App, conn: Connection, topology: Topology, stuck_after: float) -> list[Finding]:
    stores = Stores(conn, app.names, AlignedClock(here()), topology, app.encryption)
    await stores.know_the_time()
    every = await session_rows(stores, every=True, count=False)
    rows = [row for row in every if row.closed is None]
    stored = await stores.work.stored(stores.runs.patience())
    lanes = await queue_rows(stores, rows, stored=stored.lanes)
    owing = await suspects(stores, gone_by(every), stored, bodies=False)
    late = [one for one in owing if one.unchanged_seconds >= stuck_after]
    foreign = _foreign(app.names.work_stream, sorted(stored.foreign))
    found = [*_processes(rows, lanes), *_queues(lanes), *_stuck(late, stuck_after), *foreign]
    unknown = await schedules_unknown(stores, rows)
    if unknown:
        found.append(Finding("schedules", "note", f"no supervisor's code has {_some(unknown)}, which start by themselves",
                             "`tenure cancel` ends one; else run a supervisor with that code"))  # fmt: skip
    holds = await Client.over(app, stores).blocks()
    if holds:
        found.append(
            Finding("held back", "note", "; ".join(map(str, holds)), "`tenure blocks` says since when and why")
        )
    for what, stream, command in (
        ("dead letters", app.names.dead_stream, "`tenure dead ls` and `tenure dead rejected` list them"),
        ("inbox", app.names.inbox_stream, "a supervisor with the app's code applies them"),
    ):
        info = await _asked(conn, f"STREAM.INFO.{stream}")
        number = info["state"]["messages"]
        if number:
            found.append(Finding(what, "note", f"{number} stored", command))
    return found


def _processes(rows: list[SessionRow], lanes: list[QueueRow]) -> Iterator[Finding]:
    alive = Counter(row.kind for row in rows if row.state == "alive")
    busy = alive["worker"] > 0 or any(lane.waiting or lane.in_hand for lane in lanes)
    if alive["supervisor"]:
        yield Finding("supervisors", "ok", f"{alive['supervisor']} alive")
    else:
        yield Finding("supervisors", "down" if busy else "note", "none is alive: what a crash leaves is not repaired",
                      "run `tenure supervisor module:app`, best two of them")  # fmt: skip
    if alive["worker"]:
        yield Finding("workers", "ok", f"{alive['worker']} alive")
    else:
        yield Finding("workers", "note", "none is alive: what is submitted waits", "run `tenure worker module:app`")
    silent = [f"{row.kind} {row.host} {row.pid}, for {span(row.beat_seconds)}" for row in rows if row.state == "silent"]
    if silent:
        yield Finding(
            "sessions",
            "down",
            f"{len(silent)} silent: {_some(silent)}",
            "supervisors close them, or `tenure repair` does",
        )


def _queues(lanes: list[QueueRow]) -> Iterator[Finding]:
    waiting: Counter[str] = Counter()
    for lane in lanes:
        if not lane.workers and not lane.paused:
            waiting[lane.queue] += lane.waiting
    for queue, number in sorted(waiting.items()):
        if number:
            yield Finding("queues", "down", f"{number} wait in queue {queue!r}, and no worker that is alive works on it",
                          f"run `tenure worker module:app --queue {queue}`")  # fmt: skip


def _stuck(late: list[Suspect], seconds: float) -> Iterator[Finding]:
    if not late:
        yield Finding("runs", "ok", f"no key has waited for a repair for {span(seconds)}")
        return
    named = [f"{one.key!r} ({one.why}, for {span(one.unchanged_seconds)})" for one in late]
    yield Finding(
        "runs", "down", f"{len(late)} stuck: {_some(named)}", "supervisors repair them, or `tenure repair` does"
    )


def _foreign(stream: str, subjects: list[str]) -> Iterator[Finding]:
    if subjects:
        yield Finding("messages", "note", f"{stream} has {len(subjects)} subjects that name no run: {_some(subjects)}",
                      "supervisors remove them, or `tenure repair` does; let only Tenure's own users publish there:"
                      " `tenure permissions`")  # fmt: skip


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _bytes(number: int) -> str:
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004  (the next unit)
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
