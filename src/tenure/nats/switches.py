"""The board of switches: one entry of the runs bucket under a system prefix. The only module that reads or writes it.

It lies in the bucket of the records: where claims can be stored it can be read, and an upgrade of a namespace has nothing
to do. As with records every write is a compare-and-swap, and one of unknown fate is repeated until the revision has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from tenure.core.errors import InvalidCall, UnreadableRecord
from tenure.core.given import UNREADABLE
from tenure.core.sealing import Codec
from tenure.core.subjects import Names
from tenure.core.switches import SCHEMA, Board, board_fault
from tenure.nats.asking import ask
from tenure.nats.connection import Connection
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE
from tenure.nats.swaps import EXPECT, swap
from tenure.nats.watch import Watch

_REMOVED = "KV-Operation"


class Changed(Struct, frozen=True):
    """The board before a change and after it: equal if nothing had to be stored."""

    before: Board
    after: Board


class Switches:
    """The switches of one namespace."""

    def __init__(self, conn: Connection, names: Names, codec: Codec) -> None:
        self._conn = conn
        self._codec = codec
        self._names = names

    async def read(self, patience: Patience) -> Board:
        """The board; an empty one if there is none. Raises Unavailable, UnreadableRecord for what is none of ours."""
        return (await self._read(patience))[0]

    async def change(self, decide: Callable[[Board], Board], patience: Patience) -> Changed:
        """Store what ``decide`` makes of the board, which must come to the same if it is asked once more.

        Raises InvalidCall where it is too much, Unavailable, OutcomeUnknown, UnreadableRecord.
        """
        board, revision = await self._read(patience)
        first, unsure = board, False
        while True:
            after = decide(board)
            if after == board:  # a write of unknown fate was ours, if there was one: it began with the first
                return Changed(first if unsure else board, board)
            fault = board_fault(after) if len(after.switches) > len(board.switches) else ""
            if fault:
                raise InvalidCall(fault, field=None)
            written, repeated = await self._write(after, revision, patience)
            if written:
                return Changed(board, after)
            unsure = unsure or repeated
            board, revision = await self._read(patience)

    async def _read(self, patience: Patience) -> tuple[Board, int]:
        call, body = f"STREAM.MSG.GET.{self._names.runs_stream}", {"last_by_subj": self._names.board}
        what = "read what is paused and blocked"
        answer = await ask(self._conn, call, body, patience, what=what, absent=(NO_MESSAGE,))
        if answer is None:
            return Board(), 0
        message: dict[str, Any] = answer["message"]
        headers = msgspec.convert(message.get("hdrs", ""), bytes)
        revision = int(message["seq"])
        if f"{_REMOVED}:".encode() in headers:
            return Board(), revision
        return _board(self._codec, msgspec.convert(message.get("data", ""), bytes)), revision

    async def _write(self, board: Board, revision: int, patience: Patience) -> tuple[bool, bool]:
        """One CAS, repeated until its fate is known: (whether it is stored, whether it could have happened unseen)."""
        revision, unsure, _ = await swap(
            self._conn,
            self._names.board,
            self._codec.encode_board(board),
            {EXPECT: str(revision)},
            patience,
            stream=self._names.runs_stream,
            what="what is paused and blocked",
        )
        return revision > 0, unsure

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
        msg = f"what is paused and blocked cannot be read ({error}), {len(data)} bytes"
        raise UnreadableRecord(msg) from error
    if board.schema > SCHEMA:
        msg = f"what is paused and blocked was written by a newer Tenure (form {board.schema}, known: {SCHEMA}): upgrade this process"
        raise UnreadableRecord(msg)
    return board
