"""Every number that can be set, with its unit in its name, and the one place where the timing chain is asserted."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from tenure.core.errors import ConfigError
from tenure.core.given import number, whole

_TTL_ALONE, _TTL_REPLICATED = 5.0, 12.0
MAX_INLINE_BYTES = 131_072
"""A record (at most 1 MiB, the server's limit for one message) may hold its arguments, their copies in up to four dead
letters that are still owed, and a successor's arguments or a result. Were there no room, a run could not end."""
MIN_DEAD_KEPT_DAYS = 1 / 24
MIN_HISTORY_REVISIONS = 1_000
"""An eighth of it is for refusals, and one message of either stream may be 1 MiB."""
MIN_TTL_SECONDS = 0.4
MAX_REPLICAS = 5
_WHOLE = frozenset({
    "replicas", "inline_limit_bytes", "blob_limit_bytes", "wake_limit_bytes", "traceback_limit_bytes", "repairs_at_once",
    "stuck_limit", "commands_at_once", "history_revisions",
})  # fmt: skip


class Config(Struct, frozen=True, kw_only=True):
    """Settings of one process; all times in seconds. The defaults suit one server or a three-node cluster on one site.

    What ``setup`` makes, and leaves alone where it exists:

    ``replicas`` (1): copies of each stream, at most 5.
    ``storage`` (file): file or memory.
    ``dead_kept_days`` (30): how long the letter of a run that failed for good is kept; set anew where ``setup`` is given the
    app.
    ``history_days`` (7): how long it is told what happened to a key (`tenure show KEY --history`); 0: nothing is kept.
    ``history_revisions`` (100000): and how many revisions of that, the oldest go first; both as ``dead_kept_days``.

    Whose time is it:

    ``session_ttl_seconds`` (None): how long a silent worker keeps what it claimed, and how long after its end others take
    over; also the longest outage of the server that a worker's bodies outlive. Renewed five times as often. None: 5 where
    the sessions bucket has one copy; 12 where it has replicas, because a leader that dies is followed by an election of up
    to 9 seconds in which nobody can renew, and each would cost every running body its session.
    ``ack_wait_seconds`` (6): after how long the server delivers an unanswered wake-up again: what a killed worker had been
    sent and not yet claimed starts elsewhere that much later. Six times as often the server is told what is worked on. An
    election on a cluster may last longer; then what is worked on is delivered once more, finds its holder alive and is
    handed back.
    ``pull_expires_seconds`` (4): how long the server keeps a pull. A frozen process keeps its pulls, and what its dead hands
    let go could be handed to it again: so less than ``ack_wait_seconds``, and no more than the four fifths of a ttl after
    which its session may be closed.
    ``idle_heartbeat_seconds`` (2): how often the server says that an unanswered pull still stands; after 2.5 times this
    silence it is made anew.

    How long a call waits:

    ``connect_timeout_seconds`` (5): for a server, before Unavailable.
    ``request_timeout_seconds`` (2): for an answer, before the request's fate counts as unknown and it is repeated.
    ``patience_seconds`` (10): how long a client's call keeps trying before Unavailable or OutcomeUnknown.
    ``reread_seconds`` (10): who waits for a key re-reads it this seldom, against an event lost in a leader change; not how
    results arrive.
    ``progress_interval_seconds`` (0.1): a run's progress is published at most this often; the newest value wins.

    How large a thing may be, in bytes:

    ``inline_limit_bytes`` (65536): arguments and results over this go to the blob store; at most 131072.
    ``blob_limit_bytes`` (33554432): arguments and results over this are refused.
    ``wake_limit_bytes`` (16384): records up to this size travel in their wake-up, so that a claim needs no read.
    ``traceback_limit_bytes`` (8192): so much of a failure's traceback is kept, its end.

    How a worker ends, and how its bodies do:

    ``drain_seconds`` (30): how long a stopping worker lets bodies finish before it cancels them.
    ``stop_seconds`` (2): after a second signal: how long it waits for cancelled bodies to end before it gives them up.
    ``stuck_limit`` (20): bodies of a worker that ignore their stop past their grace; with more it takes no new runs.
    ``child_start_seconds`` (30): how long a child process may take to start and to import an actor's module.
    ``child_idle_seconds`` (60): how long a child process without work is kept for the next run.

    What a supervisor does:

    ``sweep_seconds`` (10): its shortest pause between two passes over all records; what a closed session held is looked for at once.
    ``sweep_records_per_second`` (15000): how fast it passes over them: about a fifth of a core.
    ``repairs_at_once`` (32): keys that it repairs at the same time.
    ``commands_at_once`` (128): commands of the inbox that it has in hand at the same time.
    ``command_patience_seconds`` (3600): how long a command for an actor that no supervisor's code knows, or for a key that
    cannot take it now, is tried again before it is rejected.
    ``blob_grace_seconds`` (3600): so old must arguments and results in the blob store be before they go once nothing names them.

    Raises ConfigError for what cannot work, alone or together; it names the settings.
    """

    replicas: int = 1
    storage: Literal["file", "memory"] = "file"
    session_ttl_seconds: float | None = None
    ack_wait_seconds: float = 6.0
    request_timeout_seconds: float = 2.0
    patience_seconds: float = 10.0
    connect_timeout_seconds: float = 5.0
    inline_limit_bytes: int = 65_536
    blob_limit_bytes: int = 33_554_432
    wake_limit_bytes: int = 16_384
    traceback_limit_bytes: int = 8_192
    dead_kept_days: float = 30.0
    history_days: float = 7.0
    history_revisions: int = 100_000
    reread_seconds: float = 10.0
    pull_expires_seconds: float = 4.0
    idle_heartbeat_seconds: float = 2.0
    drain_seconds: float = 30.0
    sweep_seconds: float = 10.0
    sweep_records_per_second: float = 15_000.0
    repairs_at_once: int = 32
    commands_at_once: int = 128
    command_patience_seconds: float = 3_600.0
    blob_grace_seconds: float = 3_600.0
    stop_seconds: float = 2.0
    stuck_limit: int = 20
    child_start_seconds: float = 30.0
    child_idle_seconds: float = 60.0
    progress_interval_seconds: float = 0.1

    def session_ttl(self, copies: int) -> float:
        """Seconds a session lives unrenewed in a bucket of so many copies."""
        if self.session_ttl_seconds is not None:
            return self.session_ttl_seconds
        return _TTL_ALONE if copies == 1 else _TTL_REPLICATED

    def __post_init__(self) -> None:
        """Refuse what is no such setting, and numbers that cannot work together; ConfigError names both."""
        self._check_each()
        if self.session_ttl_seconds is not None and self.session_ttl_seconds < MIN_TTL_SECONDS:
            _bad(
                f"session_ttl_seconds must be at least {MIN_TTL_SECONDS}, got {self.session_ttl_seconds!r}: a renewal's"
                " answer has a third of it"
            )
        if self.ack_wait_seconds <= 3 * self.request_timeout_seconds / 2:
            _bad("ack_wait_seconds must be over 1.5 x request_timeout_seconds, else in-progress acks come too late")
        if self.idle_heartbeat_seconds * 2 > self.pull_expires_seconds:
            _bad("pull_expires_seconds must be at least twice idle_heartbeat_seconds (a rule of the server)")
        if self.wake_limit_bytes > self.inline_limit_bytes * 2:
            _bad("wake_limit_bytes must not be over twice inline_limit_bytes")
        if self.inline_limit_bytes > self.blob_limit_bytes:
            _bad("inline_limit_bytes must not be over blob_limit_bytes")
        if self.inline_limit_bytes > MAX_INLINE_BYTES:
            _bad(
                f"inline_limit_bytes must not be over {MAX_INLINE_BYTES}: one message holds a record with up to six payloads"
            )
        if self.dead_kept_days < MIN_DEAD_KEPT_DAYS:
            _bad("dead_kept_days must be at least an hour (1 / 24)")
        if 0 < self.history_days < MIN_DEAD_KEPT_DAYS:
            _bad("history_days must be at least an hour (1 / 24), or 0: no history")
        if self.history_revisions < MIN_HISTORY_REVISIONS:
            _bad(f"history_revisions must be at least {MIN_HISTORY_REVISIONS}, got {self.history_revisions!r}")

    def _check_each(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "storage" or (name == "session_ttl_seconds" and value is None):
                continue
            if name in _WHOLE and ((count := whole(value)) is None or count < 1):
                _bad(f"{name} must be a whole number >= 1, got {value!r}")
            if name == "history_days" and number(value) == 0:
                continue
            if (size := number(value)) is None or size <= 0:
                _bad(f"{name} must be a finite number > 0, got {value!r}")
            if type(value) not in {int, float}:  # of a class of its own: a session's entry could not hold it
                force_setattr(self, name, int(value) if name in _WHOLE else size)
        if self.storage not in ("file", "memory"):
            _bad(f"storage must be file or memory, got {self.storage!r}")
        if self.replicas > MAX_REPLICAS:
            _bad(f"replicas must be at most {MAX_REPLICAS} (the server's limit), got {self.replicas!r}")


def _bad(text: str) -> None:
    msg = f"configuration: {text}"
    raise ConfigError(msg)
