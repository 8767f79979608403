"""Names: how keys, queues and runs become subjects, and back.

Owns the only encoding of user keys. Any Unicode key becomes **one** subject token of the KV alphabet: letters, digits,
``-`` and ``_`` stay, every other byte of its UTF-8 form becomes ``=XX``. The map is one-to-one, so no two keys collide;
a token never holds a dot, so no key can reach a system entry (those have one), a wildcard or another subject.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from tenure.core.errors import ConfigError, InvalidCall
from tenure.core.given import plain

MAX_KEY_BYTES = 256
"""Longest key, in bytes of UTF-8.

Three times as long at most on the wire, well below the server's 4 KiB control line.
"""

PRIORITIES = ("high", "normal", "low")
ROOT = "tenure"
"""The first token of every subject of Tenure's but those of the server's own stores (``$KV``, ``$O``)."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_ESCAPED = re.compile(rb"[^A-Za-z0-9_-]")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+\Z")
_WAKEUP = re.compile(rf"([A-Za-z0-9_-]{{1,64}})\.({'|'.join(PRIORITIES)})\.([^.]+)\.([^.]+)\Z")
_TIMER = re.compile(r"([^.]+)\.([^.]+)\.([0-9]+(?:-[0-9]+)?)\Z")
_PARKED = re.compile(r"([^.]+)\.([^.]+)\.([^.]+)\Z")


def check_name(kind: str, name: object) -> str:
    """Return ``name`` if it may name a ``kind`` (namespace, queue, actor): 1 to 64 letters, digits, ``-`` and ``_``.

    Raises ConfigError that names the kind otherwise.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        msg = f"{kind} {name!r}: use 1 to 64 letters, digits, '-' and '_'"
        raise ConfigError(msg)
    return plain(name)


def check_priority(priority: object) -> str:
    """Return ``priority`` if it is one of high, normal, low; ConfigError otherwise."""
    if not isinstance(priority, str) or priority not in PRIORITIES:
        msg = f"priority {priority!r}: use one of {', '.join(PRIORITIES)}"
        raise ConfigError(msg)
    return plain(priority)


def check_key(key: object) -> str:
    """The key as a plain str, if it may be one. Raises InvalidCall as ``encode_key``."""
    encode_key(key)
    return plain(key)  # type: ignore[arg-type]  # only a str can be encoded


def encode_key(key: object) -> str:
    """Encode a user key as one subject token.

    Raises InvalidCall (field ``key``) for what is not a str, is empty, is not valid Unicode, or is longer than
    ``MAX_KEY_BYTES`` bytes of UTF-8.
    """
    if not isinstance(key, str):
        msg = f"key must be a str, got {type(key).__name__}"
        raise InvalidCall(msg, field="key")
    return _encode(plain(key))


@lru_cache(maxsize=4096)
def _encode(key: str) -> str:
    if not key:
        msg = "key is empty: give at least one character"
        raise InvalidCall(msg, field="key")
    try:
        raw = key.encode()
    except UnicodeEncodeError as error:
        msg = f"key {key!r} is not valid Unicode: {error.reason} at position {error.start}"
        raise InvalidCall(msg, field="key") from error
    if len(raw) > MAX_KEY_BYTES:
        msg = (
            f"key {key[:32]!r}... is {len(raw)} bytes of UTF-8; at most {MAX_KEY_BYTES} are allowed: use a digest of it"
        )
        raise InvalidCall(msg, field="key")
    if _PLAIN_KEY.match(key):
        return key
    return _ESCAPED.sub(lambda m: b"=%02X" % m.group()[0], raw).decode()


def decode_key(token: str) -> str:
    """Return the key whose token this is; ValueError for what ``encode_key`` cannot have made."""
    if _PLAIN_KEY.match(token) and len(token) <= MAX_KEY_BYTES:
        return token
    if not _TOKEN.match(token):
        msg = f"not an encoded key: {token!r}"
        raise ValueError(msg)
    raw = re.sub(rb"=([0-9A-F]{2})", lambda m: bytes([int(m.group(1), 16)]), token.encode())
    key = raw.decode()  # UnicodeDecodeError is a ValueError
    if encode_key(key) != token:
        msg = f"not an encoded key: {token!r}"
        raise ValueError(msg)
    return key


class WorkSubject(NamedTuple):
    """The parts of ``tenure.<ns>.work.<queue>.<priority>.<key>.<run id>``, key decoded."""

    queue: str
    priority: str
    key: str
    run_id: str


class Names:
    """Every name of one namespace on the server."""

    def __init__(self, namespace: str) -> None:
        self.namespace = check_name("namespace", namespace)
        if namespace.endswith("_SESSIONS"):
            msg = f"namespace {namespace!r}: its runs would share a bucket with the sessions of {namespace[:-9]!r}"
            raise ConfigError(msg)
        self.root = f"{ROOT}.{namespace}"
        self.runs_bucket = f"TENURE_{namespace}"
        self.runs_stream = f"KV_TENURE_{namespace}"
        self.runs_prefix = f"$KV.TENURE_{namespace}."
        self.sessions_bucket = f"TENURE_{namespace}_SESSIONS"
        self.sessions_stream = f"KV_TENURE_{namespace}_SESSIONS"
        self.sessions_prefix = f"$KV.TENURE_{namespace}_SESSIONS."
        self.work_stream = f"TENURE_{namespace}_WORK"
        self.work_prefix = f"{self.root}.work."
        self.timer_prefix = f"{self.root}.timer."
        self.park_prefix = f"{self.root}.park."
        self._stored = {self.work_prefix: (_WAKEUP, 3), self.timer_prefix: (_TIMER, 1), self.park_prefix: (_PARKED, 2)}
        self.limit_prefix = f"{self.runs_prefix}limit."
        self.board = f"{self.runs_prefix}switch.board"
        self.rate_prefix = f"{self.runs_prefix}rate."
        self.handover_prefix = f"{self.root}.handover."
        self.inbox_stream = f"TENURE_{namespace}_INBOX"
        self.inbox_subjects = [f"{self.root}.submit.*", f"{self.root}.replace.*", f"{self.root}.cancel"]
        self.api_prefix = f"{self.root}.api."
        self.known_prefix = f"{self.root}.known."
        self.dead_stream = f"TENURE_{namespace}_DEAD"
        self.dead_prefix = f"{self.root}.dead."
        self.history_stream = f"TENURE_{namespace}_HISTORY"
        self.refused_stream = f"TENURE_{namespace}_REFUSED"
        self.refused_prefix = f"{self.root}.refused."
        self.event_prefix = f"{self.root}.event."
        self.note_prefix = f"{self.root}.note."
        self.blobs_bucket = f"TENURE_{namespace}_BLOBS"
        self.blobs_stream = f"OBJ_TENURE_{namespace}_BLOBS"

    def record(self, key: str) -> str:
        """Subject of a key's record in the runs bucket."""
        return self.runs_prefix + encode_key(key)

    def event(self, key: str) -> str:
        """Subject on which every write of a key's record is repeated (plain NATS, at most once)."""
        return self.event_prefix + encode_key(key)

    def refused(self, key: str) -> str:
        """Subject on which it is told who was refused at a key."""
        return self.refused_prefix + encode_key(key)

    def progress(self, key: str, run_id: str) -> str:
        """Subject of a run's latest progress.

        An entry of the sessions bucket, so that it never costs the record a revision.
        """
        return f"{self.sessions_prefix}progress.{encode_key(key)}.{run_id}"

    def notes(self, key: str) -> str:
        """Subjects on which the progress of a key's runs is repeated (plain NATS, at most once)."""
        return f"{self.note_prefix}{encode_key(key)}.*"

    def work(self, queue: str, priority: str, key: str, run_id: str) -> str:
        """Subject of a run's wake-ups: unique to (key, run id), so that "is one stored?" is one look-up."""
        return f"{self.work_prefix}{queue}.{priority}.{encode_key(key)}.{run_id}"

    def work_filter(self, queue: str, priority: str) -> str:
        """What the durable consumer of a lane delivers."""
        return f"{self.work_prefix}{queue}.{priority}.>"

    def handover(self, queue: str, actor: str) -> str:
        """Subject on which wake-ups of a queue are offered to those who know their actor (plain NATS, at most once).

        Raises InvalidCall for a name that no actor can have.
        """
        return f"{self.handover_prefix}{queue}.{encode_key(actor)}"

    def consumer(self, queue: str, priority: str) -> str:
        """Name of a lane's durable consumer."""
        return f"{queue}-{priority}"

    def timer(self, key: str, run_id: str, attempt: int) -> str:
        """Subject of a server-side schedule, never used twice.

        A replacement written while its forerunner fires is purged.
        """
        return f"{self.timer_prefix}{encode_key(key)}.{run_id}.{attempt}"

    def limit(self, name: str) -> str:
        """Subject of a limit's entry in the runs bucket: its dot keeps it out of reach of keys and of looks at all of them."""
        return self.limit_prefix + name

    def rate(self, name: str) -> str:
        """Subject of a rate's entry in the runs bucket, out of reach as a limit's is."""
        return self.rate_prefix + name

    def park(self, limit: str, key: str, run_id: str) -> str:
        """Subject of the message of a run that waits for its place under a limit; ``*`` as the limit: under any."""
        return f"{self.park_prefix}{limit}.{encode_key(key)}.{run_id}"

    def dead(self, actor: str, key: str, run_id: str) -> str:
        """Subject of a run's dead letter."""
        return f"{self.dead_prefix}{actor}.{encode_key(key)}.{run_id}"

    def rejected(self, command: str) -> str:
        """Subject of a command of the inbox that was rejected: one token shorter than that of any dead letter."""
        return f"{self.dead_prefix}rejected.{command}"

    def dead_filter(self, actor: str | None, key: str | None, run_id: str | None) -> str:
        """Subjects of the dead letters of these; None: of any."""
        return f"{self.dead_prefix}{actor or '*'}.{'*' if key is None else encode_key(key)}.{run_id or '*'}"

    def session(self, session: str) -> str:
        """Subject of a session's entry."""
        return f"{self.sessions_prefix}session.{session}"

    def stop(self, session: str, run_id: str, attempt: int) -> str:
        """Subject of the one stop signal to an attempt of a run under a session."""
        return f"{self.sessions_prefix}stop.{session}.{run_id}.{attempt}"

    def stops(self, session: str) -> str:
        """Every stop signal addressed to a session."""
        return f"{self.sessions_prefix}stop.{session}.*.*"

    def parse_command(self, subject: str) -> tuple[str, str]:
        """The verb and the actor (empty for a cancel) that a subject of the inbox names; ``("", "")`` for a foreign one."""
        verb, _, actor = subject.removeprefix(f"{self.root}.").partition(".")
        known = (verb in {"submit", "replace"} and actor != "" and "." not in actor) or (verb, actor) == ("cancel", "")
        return (verb, actor) if known and subject.startswith(f"{self.root}.") else ("", "")

    def parse_work(self, subject: str) -> WorkSubject | None:
        """Take a work subject apart.

        None for a foreign one (it names no run, so nothing of ours can be lost with it).
        """
        if not subject.startswith(self.work_prefix):
            return None
        parts = subject[len(self.work_prefix) :].split(".")
        if len(parts) != 4:  # noqa: PLR2004  (queue, priority, key, run id)
            return None
        queue, priority, token, run_id = parts
        try:
            return WorkSubject(queue, priority, decode_key(token), run_id)
        except (ValueError, InvalidCall):
            return None

    def stored_for(self, prefix: str, subject: str) -> tuple[str, ...] | None:
        """The tokens after ``prefix`` (of wake-ups, timers, parked messages) of a subject of the work stream.

        None if no Tenure stores anything there: no worker and no supervisor will ever take it. A queue or a limit that
        nobody looks after now is no reason.
        """
        shape, at = self._stored[prefix]
        match = shape.match(subject, len(prefix))
        if match is None:
            return None
        try:
            decode_key(match[at])
        except (ValueError, InvalidCall):
            return None
        return match.groups()
