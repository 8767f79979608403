"""A call of JetStream's API, made again until it is answered: for the stores whose questions may be repeated without harm.

And what somebody is told whose stream is gone: a person must do something, which no later try will.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from tenure.core.errors import Unavailable
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience

NO_STREAM = 10059
_SETUP = "run `tenure setup`"
DEPOSED_SECONDS = 60.0
"""A leader that does not know yet that it was deposed gives up sooner. A record is gone without a trace an hour after its end."""
_SURE_SECONDS = 10.0
"""By then a leader that was deposed knows it."""


class Shown(Protocol):
    """What a read of an entry shows."""

    @property
    def revision(self) -> int:
        """Of the entry, or of the mark of its end; 0: there is neither."""
        ...


S = TypeVar("S", bound=Shown)


def gone(stream: str) -> str:
    """What to say of it."""
    return f"stream {stream} is gone; {_SETUP}"


def told_by(error: ApiError, stream: str) -> str:
    """An error answer of ``stream``'s, in words."""
    return gone(stream) if error.err_code == NO_STREAM else error.description


async def cause(conn: Connection, stream: str, why: object) -> object:
    """Of a publish that was given up: ``why``, or that its stream is gone. Then nobody listens, which is all the server says."""
    return gone(stream) if isinstance(why, NotSent) and await is_gone(conn, stream) else why


async def is_gone(conn: Connection, stream: str) -> bool:
    """Whether the server says so."""
    try:
        answer = await conn.api(f"STREAM.INFO.{stream}", {})
    except (NotSent, Lost):
        return False
    return isinstance(answer, ApiError) and answer.err_code == NO_STREAM


async def ask(
    conn: Connection, call: str, body: dict[str, Any], patience: Patience, *, what: str, absent: tuple[int, ...] = ()
) -> dict[str, Any] | None:
    """The answer; None for an error code in ``absent``. Raises Unavailable: "cannot ``what``: ..."."""
    while True:
        try:
            answer = await conn.api(call, body)
        except (NotSent, Lost) as error:
            why: object = error
        else:
            if not isinstance(answer, ApiError):
                return answer
            if answer.err_code in absent:
                return None
            why = f"{answer.description}; {_SETUP}" if answer.err_code == NO_STREAM else answer.description
        if not await patience.pause():
            msg = f"cannot {what}: {why}"
            raise Unavailable(msg)


async def last_of(conn: Connection, stream: str, patience: Patience) -> int:
    """The highest sequence that a stream's leader has given. Raises Unavailable."""
    answer = await ask(conn, f"STREAM.INFO.{stream}", {}, patience, what=f"look at stream {stream}")
    return int(answer["state"]["last_seq"]) if answer is not None else 0


class Counted(NamedTuple):
    """How far a leader has counted, and whether it has a message of a subject: both in one answer, of one leader."""

    last: int
    there: bool


async def counted(conn: Connection, stream: str, subject: str, patience: Patience) -> Counted:
    """Ask for it. Raises Unavailable."""
    body = {"subjects_filter": subject}
    answer = await ask(conn, f"STREAM.INFO.{stream}", body, patience, what=f"look at stream {stream}")
    state = answer["state"] if answer is not None else {}
    return Counted(int(state.get("last_seq", 0)), bool(state.get("subjects")))


async def no_older(
    read: Callable[[], Awaitable[S]], since: int, look: Callable[[], Awaitable[Counted]], patience: Patience, what: str
) -> S:
    """What ``read`` shows, but nothing older than the revision ``since``, which is known to have been there.

    Who shows less may be a leader that was deposed and does not know it yet: whatever were decided on that is decided on what
    is over. One that has counted so far is believed: at once that nothing is there, for it has expired or was removed; in the end
    that it is older, for the stream was restored from a backup. Raises Unavailable: "``what`` cannot be seen".
    """
    sure, goes_on = patience.at_most(_SURE_SECONDS), True
    while True:
        shown = await read()
        if shown.revision >= since:
            return shown
        if not (shown.revision and goes_on):
            leader = await look()
            if leader.last >= since and leader.there == bool(shown.revision):
                return shown
        if not goes_on:
            msg = f"{what} cannot be seen: it is older than it was"
            raise Unavailable(msg)
        goes_on = await sure.pause()


async def subjects_of(conn: Connection, stream: str, wanted: str, patience: Patience, *, what: str) -> list[str]:
    """Every subject that fits ``wanted`` and has a message in a stream. Raises as ``ask``."""
    found: list[str] = []
    while True:
        body = {"subjects_filter": wanted, "offset": len(found)}
        answer = await ask(conn, f"STREAM.INFO.{stream}", body, patience, what=what) or {}
        subjects: dict[str, int] = (answer.get("state") or {}).get("subjects") or {}
        found += subjects
        if not subjects or len(found) >= int(answer.get("total", 0)):
            return found
