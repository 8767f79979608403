"""The board of switches: one entry of the runs bucket under a system prefix. The only module that reads or writes it.

It lies in the bucket of the records: where claims can be stored it can be read, and an upgrade of a namespace has nothing
to do. As with records every write is a compare-and-swap, and one of unknown fate is repeated until the revision has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from tenure.core.errors import InvalidCall, OutcomeUnknown, Unavailable, UnreadableRecord
from tenure.core.given import UNREADABLE
from tenure.core.sealing import Codec
from tenure.core.subjects import Names
from tenure.core.switches import SCHEMA, Board, board_fault
from tenure.nats.asking import ask, counted, no_older
from tenure.nats.connection import Connection
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE
from tenure.nats.swaps import EXPECT, Swapped, swap
from tenure.nats.watch import Watch

_REMOVED = "KV-Operation"
_WHAT = "what is paused and blocked"


class Changed(Struct, frozen=True):
    """The board before a change and after it: equal if nothing had to be changed."""

    before: Board
    after: Board


class _Found(Struct, frozen=True):
    """A board and its revision, or that of the mark of its end; an empty one and 0: there is neither."""

    board: Board
    revision: int


class Switches:
    """The switches of one namespace."""

    def __init__(self, conn: Connection, names: Names, codec: Codec) -> None:
        self._conn = conn
        self._codec = codec
        self._names = names

    async def read(self, patience: Patience) -> Board:
        """The board; an empty one if there is none. Raises Unavailable, UnreadableRecord for what is none of ours."""
        return (await self._read(patience)).board

    async def change(self, decide: Callable[[Board], Board], patience: Patience) -> Changed:
        """Store what ``decide`` makes of the board, which must come to the same if it is asked once more.

        In a cluster, that nothing is to be changed is believed of what is no older than what a refusal of this very call has met; else
        the board is written as it was read, for a leader that was deposed may have shown it. Raises InvalidCall where it is too
        much, Unavailable, OutcomeUnknown, UnreadableRecord.
        """
        found = await self._read(patience)
        first, unsure, proven, since = found.board, False, not self._conn.is_clustered, 0
        while True:
            board = found.board
            after = decide(board)
            same = after == board
            if same and proven and found.revision >= since:
                break
            fault = board_fault(after) if len(after.switches) > len(board.switches) else ""
            if fault:
                raise InvalidCall(fault, field=None)
            swapped = await self._write(after, found.revision, patience)
            if swapped.revision:
                break
            if swapped.unsure and not same:
                first, unsure = board, True
            since = max(since, found.revision, swapped.met)
            newer = swapped.met > found.revision
            proven = proven or newer
            try:
                found = await self._read_on(since, patience, newer=newer)
            except Unavailable as error:
                if not unsure:
                    raise
                msg = f"a write of {_WHAT} has no known fate, and it cannot be read to find out: {error}"
                raise OutcomeUnknown(msg, key="", revision=since) from error
        # a write of unknown fate was ours, if there was one: it began with the first
        return Changed(first if unsure and same else board, after)

    async def _read_on(self, since: int, patience: Patience, *, newer: bool) -> _Found:
        """Nothing older than ``since``. Not ``newer``: who refuses is older than who was read from. Raises as ``no_older``."""
        if not newer and not await patience.pause():
            raise Unavailable(f"cannot write {_WHAT}: it is older than it was")
        look = partial(counted, self._conn, self._names.runs_stream, self._names.board, patience)
        return await no_older(partial(self._read, patience), since, look, patience, _WHAT)

    async def _read(self, patience: Patience) -> _Found:
        call, body = f"STREAM.MSG.GET.{self._names.runs_stream}", {"last_by_subj": self._names.board}
        answer = await ask(self._conn, call, body, patience, what=f"read {_WHAT}", absent=(NO_MESSAGE,))
        if answer is None:
            return _Found(Board(), 0)
        message: dict[str, Any] = answer["message"]
        headers = msgspec.convert(message.get("hdrs", ""), bytes)
        revision = int(message["seq"])
        if f"{_REMOVED}:".encode() in headers:
            return _Found(Board(), revision)
        return _Found(_board(self._codec, msgspec.convert(message.get("data", ""), bytes)), revision)

    async def _write(self, board: Board, revision: int, patience: Patience) -> Swapped:
        """One CAS, repeated until its fate is known."""
        return await swap(
            self._conn,
            self._names.board,
            self._codec.encode_board(board),
            {EXPECT: str(revision)},
            patience,
            stream=self._names.runs_stream,
            what=_WHAT,
        )

    def watch(self, on_board: Callable[[Board | UnreadableRecord], None]) -> Watch:
        """A watch that calls ``on_board`` with the board, and again whenever it has changed."""

        async def received(msg: Msg) -> None:
            if _REMOVED in (msg.headers or {}):
                on_board(Board())
                return
            try:
                on_board(_board(self._codec, msg.data))
            except UnreadableRecord as error:
                on_board(error)

        return Watch(self._conn, self._names.runs_stream, self._names.board, received)

    async def parked(self, place: str, patience: Patience) -> int:
        """How many runs are parked under this name. Raises Unavailable."""
        subjects = self._names.park(place, "x", "x").removesuffix("x.x") + ">"
        call, what = f"STREAM.INFO.{self._names.work_stream}", "count what waits"
        answer = await ask(self._conn, call, {"subjects_filter": subjects}, patience, what=what) or {}
        return int(answer.get("total") or len((answer.get("state") or {}).get("subjects") or {}))


def _board(codec: Codec, data: bytes) -> Board:
    try:
        board = codec.decode_board(data)
    except UNREADABLE as error:
        msg = f"{_WHAT} cannot be read ({error}), {len(data)} bytes"
        raise UnreadableRecord(msg) from error
    if board.schema > SCHEMA:
        msg = f"{_WHAT} was written by a newer Tenure (form {board.schema}, known: {SCHEMA}): upgrade this process"
        raise UnreadableRecord(msg)
    return board
