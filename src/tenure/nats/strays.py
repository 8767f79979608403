"""Strays: wake-ups that are stored, and that their lane's consumer takes for acknowledged all the same.

The server delivers them to nobody any more and does not remove them: a kill -9 of it has left such a message, and so does
a consumer whose filter was changed by hand and back. While one is stored, its run looks as if
it had a wake-up. Owns nothing of a run: what still waits for the removed wake-up gets a new one from the sweep.

And what is stored where no lane looks, under a subject that names nothing of Tenure's: whoever may publish can put it there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tenure.core.subjects import Names
from tenure.nats.asking import ask
from tenure.nats.connection import Connection
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE

_GONE = (10043, 10057)
"""Error codes of the server: there is no message of this sequence any more. The second one, which it gives for a sequence
before the first that is stored, also stands for troubles of its files: then the next sweep finds the message again."""


class Stray(msgspec.Struct, frozen=True):
    """A stored message that is delivered to nobody."""

    subject: str
    seq: int


class _Floor(msgspec.Struct):
    stream_seq: int = 0


class _Settings(msgspec.Struct):
    filter_subject: str = ""


class _Consumer(msgspec.Struct):
    config: _Settings
    ack_floor: _Floor


class _Consumers(msgspec.Struct):
    total: int
    consumers: list[_Consumer]


class Strays:
    """The strays of one namespace."""

    def __init__(self, conn: Connection, names: Names) -> None:
        self._conn = conn
        self._names = names

    async def find(self, most: int, patience: Patience) -> set[Stray]:
        """All there are, or so many. Raises Unavailable.

        One that was acknowledged a moment ago may be among them: the server is about to remove it.
        """
        found: set[Stray] = set()
        for consumer in await self._consumers(patience):
            wanted, seq = consumer.config.filter_subject, 1
            while wanted.startswith(self._names.work_prefix) and len(found) < most:
                stored = await self._next(wanted, seq, patience)
                if stored is None or stored.seq > consumer.ack_floor.stream_seq:
                    break
                found.add(stored)
                seq = stored.seq + 1
        return found

    async def at(self, subjects: Iterable[str], most: int, patience: Patience) -> list[Stray]:
        """Messages stored at just these subjects, as far as so many looks tell (one may hold a wildcard). Raises Unavailable."""
        found: list[Stray] = []
        for subject in sorted(subjects, key=lambda subject: ("*" in subject or ">" in subject, subject)):
            seq = 1
            while most > 0 and (stored := await self._next(subject, seq, patience)) is not None:
                most, seq = most - 1, stored.seq + 1
                if stored.subject == subject:
                    found.append(stored)
        return found

    async def remove(self, stray: Stray, patience: Patience) -> bool:
        """Remove one; False if it is gone already. Raises Unavailable."""
        answer = await self._api("STREAM.MSG.DELETE", {"seq": stray.seq, "no_erase": True}, _GONE, patience)
        return answer is not None

    async def _next(self, wanted: str, seq: int, patience: Patience) -> Stray | None:
        answer = await self._api("STREAM.MSG.GET", {"next_by_subj": wanted, "seq": seq}, (NO_MESSAGE,), patience)
        return None if answer is None else msgspec.convert(answer["message"], Stray)

    async def _consumers(self, patience: Patience) -> list[_Consumer]:
        found: list[_Consumer] = []
        while True:
            answer = await self._api("CONSUMER.LIST", {"offset": len(found)}, (), patience)
            page = msgspec.convert(answer, _Consumers)
            found += page.consumers
            if not page.consumers or len(found) >= page.total:
                return found

    async def _api(
        self, call: str, body: dict[str, Any], absent: tuple[int, ...], patience: Patience
    ) -> dict[str, Any] | None:
        call = f"{call}.{self._names.work_stream}"
        return await ask(self._conn, call, body, patience, what="look for strays in the work stream", absent=absent)
