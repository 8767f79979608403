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
