"""What must exist on the server for a namespace: creates it, checks it, and says what differs.

Each store owns its settings (``spec``); this module only compares and creates. The incarnation of the runs bucket is a
random id in its stream's metadata: revisions of a bucket that was deleted and made again are not comparable with older
ones [12]. Beside it stands the newest schema that a ``setup`` knew: no older one changes anything after it, and older
processes that connect leave its settings as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tenure.clock import Clock, here
from tenure.config import Config
from tenure.core.errors import ConfigError, Unavailable
from tenure.core.records import SCHEMA
from tenure.core.subjects import Names
from tenure.nats import blobs, dead, history, inbox, runs, sessions, work
from tenure.nats.asking import NO_STREAM
from tenure.nats.connection import UNAVAILABLE, ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.telemetry import get_logger

_log = get_logger("tenure.setup")
_INCARNATION = "tenure.incarnation"
_SCHEMA = "tenure.schema"
_NAME_IN_USE = 10058
_NO_CLUSTER = 10074
_NO_STORE = 10049
"""A server could not make a stream's files, and has taken away what there was of them: the next try may well succeed."""
_WORK_STREAM = re.compile(r"TENURE_([A-Za-z0-9_-]+)_WORK")
_SPECS: tuple[Callable[[Names, int, str], dict[str, Any]], ...] = (
    runs.spec,
    work.spec,
    sessions.spec,
    blobs.spec,
    dead.spec,
    inbox.spec,
)
_FREE = frozenset({"name", "storage", "num_replicas", "max_age", "max_bytes", "max_msgs"})
_MUTABLE = frozenset(
    {
        "num_replicas",
        "republish",
        "subjects",
        "allow_msg_ttl",
        "subject_delete_marker_ttl",
        "max_msgs_per_subject",
        "max_age",
        "max_bytes",
        "max_msgs",
        "metadata",
    }
)


class Change(Struct, frozen=True):
    """What ``ensure`` found or did.

    ``did`` is created, updated, unchanged or differs; ``details`` name the settings.
    """

    stream: str
    did: str
    details: tuple[str, ...] = ()


class Topology(Struct, frozen=True):
    """The namespace as it now is on the server."""

    incarnation: str
    changes: tuple[Change, ...]
    last_revision: int = 0
    """The newest in the runs bucket when it was looked at."""
    session_copies: int = 1
    """Copies of the sessions bucket: how long its leader may be missing depends on them."""


async def ensure(
    conn: Connection,
    names: Names,
    clock: Clock,
    config: Config,
    *,
    replicas: int | None = None,
    dead_kept_days: float | None = None,
    migrate: bool = False,
) -> Topology:
    """Create what is missing and check what exists.

    ``replicas``: also bring existing streams to that many copies, ``dead_kept_days``: and dead letters to that age (both
    with ``migrate``). Raises ConfigError that names the stream and every setting that differs and cannot be (or, without
    ``migrate``, was not allowed to be) changed, or says that a newer Tenure has set the namespace up; Unavailable.
    """
    changes: list[Change] = []
    incarnation, revision, copies, newer = "", 0, 1, False
    for make in _SPECS:
        spec = make(names, replicas or config.replicas, config.storage)
        if make is runs.spec:
            spec["metadata"] = {_INCARNATION: clock.new_id(), _SCHEMA: str(SCHEMA)}
        wanted: dict[str, Any] = {} if replicas is None else {"num_replicas": replicas}
        if make is dead.spec:
            spec |= dead.max_age(dead_kept_days or config.dead_kept_days)
            wanted |= {} if dead_kept_days is None else dead.max_age(dead_kept_days)
        info, made = await _found_or_made(conn, spec, Patience(clock, conn.config.connect_timeout_seconds))
        if made:
            changes.append(Change(spec["name"], "created"))
        else:
            if make is runs.spec:
                newer = _is_newer(names, info, migrate=migrate)
                wanted |= _schema(info) if migrate else {}
            changes.append(await _check(conn, spec, info["config"], wanted, migrate=migrate, newer=newer))
        if make is runs.spec:
            incarnation, revision = incarnation_of(info), int(info["state"]["last_seq"])
        if make is sessions.spec:
            copies = int(info["config"].get("num_replicas", 1))
    if not incarnation:
        msg = f"stream {names.runs_stream} was not made by Tenure (its metadata lack {_INCARNATION}): use another namespace"
        raise ConfigError(msg)
    if config.history_days:
        changes += await _ensure_history(
            conn, names, config, incarnation, replicas=replicas, capped=dead_kept_days is not None, migrate=migrate
        )
    return Topology(incarnation, tuple(changes), revision, copies)


async def _found_or_made(conn: Connection, spec: dict[str, Any], patience: Patience) -> tuple[dict[str, Any], bool]:
    """A stream's info, and whether it was made now.

    Another process that starts just now may be quicker: then what it made is there, though of a cluster the member that we
    ask may not show it yet.
    """
    while True:
        info = await _call(conn, f"STREAM.INFO.{spec['name']}", {})
        if info is not None:
            return info, False
        made = await _call(conn, f"STREAM.CREATE.{spec['name']}", spec)
        if made is not None:
            return made, True
        if not await patience.pause():
            raise Unavailable(f"stream {spec['name']} is being made, but is not there yet")


async def _ensure_history(
    conn: Connection,
    names: Names,
    config: Config,
    incarnation: str,
    *,
    replicas: int | None,
    capped: bool,
    migrate: bool,
) -> list[Change]:
    """The streams that people look at and nothing depends on: what is wrong with them is told, and stops nobody.

    A mirror of a runs bucket that was made anew would wait for revisions that come again in years: ``setup`` makes it anew too.
    """
    changes = []
    for make in (history.spec, history.refused_spec):
        spec = make(names, replicas or config.replicas, config.storage)
        caps = history.caps(spec, config.history_days, config.history_revisions)
        wanted = ({} if replicas is None else {"num_replicas": replicas}) | (caps if capped else {})
        full = spec | caps | {"metadata": {_INCARNATION: incarnation}}
        try:
            info = await _call(conn, f"STREAM.INFO.{spec['name']}", {})
            stale = info is not None and incarnation_of(info) != incarnation
            if stale and migrate:
                await _call(conn, f"STREAM.DELETE.{spec['name']}", {})
            if info is None or (stale and migrate):
                await _call(conn, f"STREAM.CREATE.{spec['name']}", full)
                changes.append(Change(spec["name"], "created", (_STALE,) if stale else ()))
            elif stale:
                changes.append(_told(spec["name"], f"{_STALE}; run `tenure setup`"))
            else:
                changes.append(await _check(conn, spec, info["config"], wanted, migrate=migrate))
        except (ConfigError, Unavailable) as error:
            changes.append(_told(spec["name"], str(error)))
    return changes


_STALE = "it was of a runs bucket that was made anew since"


def _told(stream: str, why: str) -> Change:
    _log.warning("history.not_kept", stream=stream, reason=why)
    return Change(stream, "differs", (why,))


def _schema_of(info: dict[str, Any]) -> int:
    """The newest schema that a ``setup`` of this namespace knew; 0 where none said so."""
    said = str((info["config"].get("metadata") or {}).get(_SCHEMA, ""))
    return int(said) if said.isdecimal() else 0


def _is_newer(names: Names, info: dict[str, Any], *, migrate: bool) -> bool:
    """Whether a newer Tenure has set the namespace up. Raises ConfigError if this one was to change it."""
    found = _schema_of(info)
    if migrate and found > SCHEMA:
        msg = (
            f"namespace {names.namespace} was set up by a newer Tenure (schema {found}, this one knows up to {SCHEMA}) "
            "and is not taken back: run the newer one's `tenure setup`"
        )
        raise ConfigError(msg)
    return found > SCHEMA


def _schema(info: dict[str, Any]) -> dict[str, Any]:
    """What the metadata have to say, where they say less."""
    return {"metadata": (info["config"].get("metadata") or {}) | {_SCHEMA: str(max(SCHEMA, _schema_of(info)))}}


def incarnation_of(info: dict[str, Any]) -> str:
    """The incarnation in a runs bucket's stream info; empty if Tenure did not make it."""
    return str((info["config"].get("metadata") or {}).get(_INCARNATION, ""))


async def differences(conn: Connection, names: Names, config: Config) -> Topology:
    """What ``ensure`` would find, with nothing created and nothing changed.

    ``did`` is missing, unchanged or differs; without a runs bucket of Tenure's the incarnation is empty. Raises Unavailable, and
    ConfigError where the server does not let us look.
    """
    changes: list[Change] = []
    incarnation, revision, copies = "", 0, 1
    of_people = (history.spec, history.refused_spec) if config.history_days else ()
    for make in (*_SPECS, *of_people):
        spec = make(names, config.replicas, config.storage)
        info = await _call(conn, f"STREAM.INFO.{spec['name']}", {})
        if info is None:
            changes.append(Change(spec["name"], "missing"))
            continue
        wanted = _schema(info) if make is runs.spec else {}
        details = _words(_differing(spec, info["config"], wanted), info["config"])
        if make is runs.spec:
            incarnation, revision = incarnation_of(info), int(info["state"]["last_seq"])
        elif make is sessions.spec:
            copies = int(info["config"].get("num_replicas", 1))
        elif make in of_people and incarnation_of(info) != incarnation:
            details += (_STALE,)
        changes.append(Change(spec["name"], "differs" if details else "unchanged", details))
    return Topology(incarnation, tuple(changes), revision, copies)


async def exists(conn: Connection, names: Names) -> bool:
    """Whether the namespace was ever set up. Creates nothing. Raises Unavailable."""
    return await _call(conn, f"STREAM.INFO.{names.runs_stream}", {}) is not None


async def namespaces(conn: Connection) -> list[str]:
    """Every namespace that was ever set up on the server, sorted. Raises Unavailable, ConfigError where we may not ask."""
    found: list[str] = []
    offset = 0
    while True:
        page = await _call(conn, "STREAM.NAMES", {"offset": offset}) or {}
        names: list[str] = page.get("streams") or []
        found += [match[1] for name in names if (match := _WORK_STREAM.fullmatch(name))]
        offset += len(names)
        if not names or offset >= int(page.get("total", 0)):
            return sorted(found)


async def _check(
    conn: Connection,
    spec: dict[str, Any],
    actual: dict[str, Any],
    also: dict[str, Any],
    *,
    migrate: bool,
    newer: bool = False,
) -> Change:
    name = spec["name"]
    differing = _differing(spec, actual, also)
    if not differing or (newer and differing.keys() <= _MUTABLE):
        return Change(name, "unchanged")
    details = _words(differing, actual)
    if not migrate or not differing.keys() <= _MUTABLE:
        how = (
            "run `tenure setup` to change it"
            if differing.keys() <= _MUTABLE
            else "delete the stream or use another namespace"
        )
        msg = f"stream {name} has other settings: {'; '.join(details)}; {how}"
        raise ConfigError(msg)
    await _call(conn, f"STREAM.UPDATE.{name}", actual | differing)
    return Change(name, "updated", details)


def _differing(spec: dict[str, Any], actual: dict[str, Any], also: dict[str, Any]) -> dict[str, Any]:
    wanted = {field: value for field, value in spec.items() if field not in _FREE and field != "metadata"} | also
    return {field: value for field, value in wanted.items() if not _same(value, actual.get(field))}


def _words(differing: dict[str, Any], actual: dict[str, Any]) -> tuple[str, ...]:
    return tuple(_in_words(field, actual.get(field), value) for field, value in sorted(differing.items()))


def _in_words(field: str, actual: Any, wanted: Any) -> str:
    if field == "metadata":
        return f"schema is {(actual or {}).get(_SCHEMA, 'not said')}, must be {wanted[_SCHEMA]}"
    return f"{field} is {actual!r}, must be {wanted!r}"


def _same(wanted: Any, actual: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return all(actual.get(field) == value for field, value in wanted.items())
    return bool(wanted == actual) or (not wanted and actual is None)


async def _call(conn: Connection, call: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """One call of the API, made again within ``connect_timeout_seconds``.

    A stream that has no leader yet, as in a cluster where it was made just now, does not answer at all. A repetition changes
    nothing but what the first would have.
    """
    timeout = conn.config.connect_timeout_seconds
    patience = Patience(here(), timeout)
    while True:
        try:
            answer = await conn.api(call, body, timeout=min(timeout, conn.config.request_timeout_seconds))
        except (NotSent, Lost) as error:
            if await patience.pause():
                continue
            msg = f"JetStream does not answer {call}: {error}"
            raise Unavailable(msg) from error
        if not isinstance(answer, ApiError):
            return answer
        if answer.err_code in {NO_STREAM, _NAME_IN_USE}:
            return None
        msg = f"{call}: {answer.description}"
        if answer.err_code == _NO_CLUSTER:
            msg += f"; {body.get('num_replicas')} replicas need a cluster of as many servers"
        passes = answer.code == UNAVAILABLE  # a cluster between two leaders, or without a quorum
        if (passes or answer.err_code == _NO_STORE) and await patience.pause():
            continue
        raise Unavailable(msg) if passes else ConfigError(msg)
