"""A call of JetStream's API, made again until it is answered: for the stores whose questions may be repeated without harm.

And what somebody is told whose stream is gone: a person must do something, which no later try will.
"""

from __future__ import annotations

from typing import Any

from tenure.core.errors import Unavailable
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience

NO_STREAM = 10059
_SETUP = "run `tenure setup`"


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
