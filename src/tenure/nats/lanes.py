"""How far the lanes of a namespace are: what waits in each, what is in hand, and since when. For people; reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from tenure.core.subjects import PRIORITIES, Names
from tenure.nats.asking import ask
from tenure.nats.connection import Connection
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE


class Lane(Struct, frozen=True, kw_only=True):
    """One priority of a queue.

    ``waiting``: wake-ups that were delivered to nobody yet, ``in_hand``: delivered and not yet answered; ``oldest_at``: when
    the oldest of those that wait was stored (server's time). ``consumed``: whether a worker was ever there.
    """

    queue: str
    priority: str
    waiting: int
    in_hand: int = 0
    oldest_at: float | None = None
    consumed: bool = True


class Lanes:
    """The lanes of one namespace."""

    def __init__(self, conn: Connection, names: Names) -> None:
        self._conn = conn
        self._names = names

    async def look(
        self, patience: Patience, *, unserved: bool = True, stored: Mapping[tuple[str, str], int] | None = None
    ) -> list[Lane]:
        """Every lane, by queue and then by priority. Raises Unavailable.

        ``unserved``: also of queues that no worker ever worked on; that is asked of the server only where more is stored than
        the other lanes account for, for it lists every subject then. ``stored``: what such a list, made a moment ago, had.
        """
        found = [await self._lane(info, patience) for info in await self._consumers(patience)]
        if (
            unserved
            and stored is None
            and await self._stored(patience) > sum(lane.waiting + lane.in_hand for lane in found)
        ):
            stored = await self._counts(patience)
        if unserved and stored is not None:
            known = {(lane.queue, lane.priority) for lane in found}
            for (queue, priority), number in stored.items():
                if (queue, priority) not in known:
                    found.append(Lane(
                        queue=queue, priority=priority, waiting=number, consumed=False,
                        oldest_at=await self._oldest(self._names.work_filter(queue, priority), 1, patience),
                    ))  # fmt: skip
        return sorted(found, key=lambda lane: (lane.queue, _rank(lane.priority)))

    async def _lane(self, info: dict[str, Any], patience: Patience) -> Lane:
        queue, _, priority = str(info["name"]).rpartition("-")
        oldest = None
        if info["num_pending"]:
            delivered = int(info["delivered"]["stream_seq"])
            oldest = await self._oldest(self._names.work_filter(queue, priority), delivered + 1, patience)
        return Lane(
            queue=queue,
            priority=priority,
            waiting=int(info["num_pending"]),
            in_hand=int(info["num_ack_pending"]),
            oldest_at=oldest,
        )

    async def _consumers(self, patience: Patience) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        offset = 0
        while True:
            page = await self._ask("CONSUMER.LIST", {"offset": offset}, patience) or {}
            infos: list[dict[str, Any]] = page.get("consumers") or []
            offset += len(infos)
            found += [info for info in infos if str(info["name"]).rpartition("-")[2] in PRIORITIES]
            if not infos or offset >= int(page.get("total", 0)):
                return found

    async def _stored(self, patience: Patience) -> int:
        info = await self._ask("STREAM.INFO", {}, patience) or {}
        return int(info.get("state", {}).get("messages", 0))

    async def _counts(self, patience: Patience) -> Counter[tuple[str, str]]:
        counts: Counter[tuple[str, str]] = Counter()
        offset, prefix = 0, self._names.work_prefix
        while True:
            body = {"subjects_filter": f"{prefix}>", "offset": offset}
            page = await self._ask("STREAM.INFO", body, patience) or {}
            subjects: dict[str, int] = page.get("state", {}).get("subjects") or {}
            for subject, number in subjects.items():
                parts = self._names.stored_for(prefix, subject)
                if parts is not None:
                    counts[parts[0], parts[1]] += number
            offset += len(subjects)
            if not subjects or offset >= int(page.get("total", 0)):
                return counts

    async def _oldest(self, wanted: str, seq: int, patience: Patience) -> float | None:
        body = {"next_by_subj": wanted, "seq": seq}
        answer = await self._ask("STREAM.MSG.GET", body, patience)
        return None if answer is None else datetime.fromisoformat(answer["message"]["time"]).timestamp()

    async def _ask(self, call: str, body: dict[str, Any], patience: Patience) -> dict[str, Any] | None:
        whole = f"{call}.{self._names.work_stream}"
        return await ask(self._conn, whole, body, patience, what="look at the queues", absent=(NO_MESSAGE,))


def _rank(priority: str) -> tuple[int, str]:
    return (PRIORITIES.index(priority) if priority in PRIORITIES else len(PRIORITIES), priority)
