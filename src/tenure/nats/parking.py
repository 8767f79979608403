"""Parked messages: the runs that wait for their place under a limit, or for a switch, in the order in which they came.

They lie in the work stream, where no consumer reads them: ``tenure.<ns>.park.<limit>.<key>.<run id>`` (for a switch: what
``core.switches.place_of`` says, in the place of the limit), each with the wake-up that it stands for, so that whoever wakes
it need not read the record. A hint like every message there: one too many costs a look, and one that is missing is the
sweep's to replace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Struct

from tenure.core.errors import Unavailable
from tenure.core.records import Record
from tenure.core.subjects import Names, decode_key
from tenure.nats.asking import ask, cause, subjects_of
from tenure.nats.connection import Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE
from tenure.nats.work import AHEAD, Work
from tenure.together import all_of

_LANE = "Tenure-Lane"
_GONE = (10043, 10057)
"""Error codes of the server: there is no message of this sequence any more."""


class Parked(Struct, frozen=True):
    """One of them: its place in the stream, whose it is, and the wake-up that it stands for."""

    seq: int
    key: str
    run_id: str
    lane: str
    payload: bytes


class _Message(Struct):
    subject: str
    seq: int
    data: bytes = b""
    hdrs: bytes = b""


class Parking:
    """The parked messages of one namespace."""

    def __init__(self, conn: Connection, names: Names, work: Work) -> None:
        self._conn = conn
        self._names = names
        self._work = work

    async def park(
        self, limit: str, record: Record, data: bytes, revision: int, patience: Patience, *, reserves: bool = True
    ) -> int:
        """Store the message of a run, unless it has one there: then it keeps that place. Raises Unavailable.

        ``reserves``: whoever wakes it has reserved a place for it. Returns the sequence of what was stored, 0 if it was
        there already.
        """
        subject = self._names.park(limit, record.key, record.run_id)
        if await self._get({"last_by_subj": subject}, patience) is not None:
            return 0
        headers = {_LANE: f"{record.task.queue}.{record.task.priority}"}
        payload = self._work.payload(record, data, revision, parked=reserves)
        return await self._put(subject, payload, headers, patience)

    async def oldest(self, limit: str, most: int, skip: Collection[str], patience: Patience) -> list[Parked]:
        """The oldest parked runs under a limit, up to ``most``; none whose run id is in ``skip``. Raises Unavailable."""
        found: dict[str, Parked] = {}
        seq, wanted = 1, self._names.park(limit, "x", "x").removesuffix("x.x") + ">"
        while len(found) < most:
            message = await self._get({"next_by_subj": wanted, "seq": seq}, patience)
            if message is None:
                break
            seq = message.seq + 1
            parked = self._read(message)
            if parked is not None and parked.run_id not in skip:
                found.setdefault(parked.run_id, parked)
        return list(found.values())

    async def all(self, limit: str, patience: Patience) -> list[tuple[str, str]]:
        """(run id, key) of whatever is parked under this name, in the order of the run ids: of submits. Raises Unavailable."""
        return sorted((await self._listed(limit, patience)).get(limit, []))

    async def everything(self, patience: Patience) -> dict[str, list[tuple[str, str]]]:
        """(run id, key) of whatever is parked, by its limit or place, in no order. Raises Unavailable."""
        return await self._listed("*", patience)

    async def _listed(self, limit: str, patience: Patience) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        prefix, what = self._names.park_prefix, "look after the parked runs"
        wanted = f"{prefix}{limit}.>"
        for subject in await subjects_of(self._conn, self._names.work_stream, wanted, patience, what=what):
            with contextlib.suppress(ValueError):  # none of ours
                place, token, run_id = subject[len(prefix) :].split(".")
                found.setdefault(place, []).append((run_id, decode_key(token)))
        return found

    async def get(self, limit: str, key: str, run_id: str, patience: Patience) -> Parked | None:
        """What this run has parked under this name. Raises Unavailable."""
        message = await self._get({"last_by_subj": self._names.park(limit, key, run_id)}, patience)
        return None if message is None else self._read(message)

    async def release(self, parked: Parked, patience: Patience) -> None:
        """Store the wake-up of a run that nobody has a place reserved for, and then remove its message. Raises Unavailable."""
        await self._put(self._wakeup(parked), parked.payload, None, patience)
        await self.drop(parked.seq, patience)

    async def wake(self, parked: Parked, patience: Patience, *, ahead: bool = False) -> None:
        """Store the wake-up of a run whose turn has come, and remove this message of it. Raises Unavailable.

        ``ahead``: a place is reserved for it, so it need not wait for what is before it in its queue.

        At the same time: whichever a crash leaves undone, the place is reserved, and a supervisor looks after that.
        """
        await all_of(
            self._put(self._wakeup(parked, ahead=ahead), parked.payload, None, patience),
            self.drop(parked.seq, patience),  # by sequence: should it park anew meanwhile, that is another
        )

    def _wakeup(self, parked: Parked, *, ahead: bool = False) -> str:
        queue, _, priority = parked.lane.partition(".")
        return self._names.work(queue, AHEAD if ahead else priority, parked.key, parked.run_id)

    async def drop(self, seq: int, patience: Patience) -> None:
        """Remove this very message, if it is still there. Raises Unavailable."""
        await self._api("STREAM.MSG.DELETE", {"seq": seq, "no_erase": True}, _GONE, patience)

    async def remove(self, limit: str, key: str, run_id: str, patience: Patience) -> None:
        """Remove whatever a run has parked under a limit. Raises Unavailable."""
        await self._api("STREAM.PURGE", {"filter": self._names.park(limit, key, run_id)}, (), patience)

    def _read(self, message: _Message) -> Parked | None:
        """None for what is none of ours."""
        limit_key_run = message.subject[len(self._names.park_prefix) :].split(".")
        lane = next(
            (
                line.partition(":")[2].strip()
                for line in message.hdrs.decode(errors="replace").split("\r\n")
                if line.startswith(_LANE + ":")
            ),
            "",
        )
        try:
            _, token, run_id = limit_key_run
            return Parked(message.seq, decode_key(token), run_id, lane, message.data) if lane else None
        except ValueError:
            return None

    async def _put(self, subject: str, payload: bytes, headers: dict[str, str] | None, patience: Patience) -> int:
        """Repeated until the server has it; a second copy is harmless. Returns its sequence."""
        while True:
            try:
                ack = await self._conn.put(subject, payload, headers)
            except (NotSent, Lost) as error:
                why: object = error
            else:
                if ack.error is None:
                    return ack.seq
                why = ack.error.description
            if not await patience.pause():
                why = await cause(self._conn, self._names.work_stream, why)
                msg = f"cannot store {subject}: {why}"
                raise Unavailable(msg)

    async def _get(self, wanted: dict[str, Any], patience: Patience) -> _Message | None:
        answer = await self._api("STREAM.MSG.GET", wanted, (NO_MESSAGE,), patience)
        return None if answer is None else msgspec.convert(answer["message"], _Message)

    async def _api(
        self, call: str, body: dict[str, Any], absent: tuple[int, ...], patience: Patience
    ) -> dict[str, Any] | None:
        call = f"{call}.{self._names.work_stream}"
        return await ask(self._conn, call, body, patience, what="look after the parked runs", absent=absent)
