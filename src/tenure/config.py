"""Every number that can be set, with its unit in its name, and the one place where the timing chain is asserted."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tenure.core.errors import ConfigError

_TTL_ALONE, _TTL_REPLICATED = 5.0, 12.0
MAX_INLINE_BYTES = 131_072
"""A record (at most 1 MiB, the server's limit for one message) may hold its arguments, their copies in up to four dead
letters that are still owed, and a successor's arguments or a result. Were there no room, a run could not end."""
MIN_DEAD_KEPT_DAYS = 1 / 24


class Config(Struct, frozen=True, kw_only=True):
    """Settings of one process. The defaults suit one server or a three-node cluster on one site."""

    replicas: int = 1
    """Copies of each stream when ``setup`` creates it; existing streams keep theirs."""
    storage: Literal["file", "memory"] = "file"
    session_ttl_seconds: float | None = None
    """How long a silent worker keeps what it claimed, and how long after its end others take over. Renewed five times as
    often. None: 5 where the sessions bucket has one copy; 12 where it has replicas, because a leader that dies is followed
    by an election of up to 9 seconds in which nobody can renew, and each would cost every running body its session."""
    ack_wait_seconds: float = 6.0
    """After how long the server delivers an unanswered wake-up again: what a killed worker had been sent and not yet claimed
    starts elsewhere that much later. Six times as often the server is told what is worked on. An election on a cluster may
    last longer; then what is worked on is delivered once more, finds its holder alive and is handed back."""
    request_timeout_seconds: float = 2.0
    """How long one request may take before its fate counts as unknown and it is repeated."""
    patience_seconds: float = 10.0
    """How long a client call keeps trying before Unavailable or OutcomeUnknown."""
    connect_timeout_seconds: float = 5.0
    inline_limit_bytes: int = 65_536
    """Arguments and results over this go to the blob store."""
    blob_limit_bytes: int = 33_554_432
    """Arguments and results over this are refused."""
    wake_limit_bytes: int = 16_384
    """Records up to this size travel in their wake-up, so that a claim needs no read."""
    traceback_limit_bytes: int = 8_192
    dead_kept_days: float = 30.0
    """How long the letter of a run that failed for good is kept, when ``setup`` creates their stream or is given the app."""
    reread_seconds: float = 10.0
    """Who waits for a key re-reads it this seldom, against an event lost in a leader change; not how results arrive."""
    pull_expires_seconds: float = 4.0
    """How long the server keeps a pull. A frozen process keeps its pulls, and what its dead hands let go could be handed to
    it again: so less than ``ack_wait_seconds``, and no more than the four fifths of a ttl after which its session may be
    closed."""
    idle_heartbeat_seconds: float = 2.0
    """How often the server says that an unanswered pull still stands; after 2.5 times this silence it is made anew."""
    drain_seconds: float = 30.0
    """How long a stopping worker lets bodies finish before it cancels them."""
    sweep_seconds: float = 10.0
    """A supervisor's pause between two passes over all records; what a closed session held is looked for at once."""
    sweep_records_per_second: float = 15_000.0
    """How fast it passes over them: about a fifth of a core."""
    repairs_at_once: int = 32
    """Keys that a supervisor repairs at the same time."""
    stop_seconds: float = 2.0
    """After a second signal: how long a worker waits for cancelled bodies to end before it gives them up."""
    stuck_limit: int = 20
    """Bodies of a worker that ignore their stop past their grace; with more of them it takes no new runs."""
    child_start_seconds: float = 30.0
    """How long a child process may take to start and to import an actor's module."""
    child_idle_seconds: float = 60.0
    """How long a child process without work is kept for the next run."""
    progress_interval_seconds: float = 0.1
    """A run's progress is published at most this often; the newest value wins."""

    def session_ttl(self, copies: int) -> float:
        """Seconds a session lives unrenewed in a bucket of so many copies."""
        if self.session_ttl_seconds is not None:
            return self.session_ttl_seconds
        return _TTL_ALONE if copies == 1 else _TTL_REPLICATED

    def __post_init__(self) -> None:
        """Refuse numbers that cannot work together; ConfigError names both."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "storage" or (name == "session_ttl_seconds" and value is None):
                continue
            if not isinstance(value, int | float) or not 0 < value < float("inf"):
                _bad(f"{name} must be a finite number > 0, got {value!r}")
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


def _bad(text: str) -> None:
    msg = f"configuration: {text}"
    raise ConfigError(msg)
