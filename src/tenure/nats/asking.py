"""A call of JetStream's API, made again until it is answered: for the stores whose questions may be repeated without harm."""

from __future__ import annotations

from typing import Any

from tenure.core.errors import Unavailable
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience


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
            why = answer.description
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
