"""What is left on the server at the end, read into evidence: records, revisions, sessions, work."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from nats.aio.msg import Msg

from tenure.core.errors import TenureError, Unavailable
from tenure.core.history import decode_refusal
from tenure.core.records import TERMINAL, decode, read_state
from tenure.core.sessions import decode_session
from tenure.core.subjects import decode_key, encode_key
from tenure.core.switches import Board
from tenure.nats.acks import parse_ack
from tenure.nats.connection import ApiError, Lost, NotSent
from tenure.nats.scan import Header
from tenure.stores import Stores
from tenure.worker.refusals import FENCED
from tests.chaos.bodies import app
from tests.history.evidence import CHIME, CHIME_LATE_SECONDS, EntrySeen, HolderSeen, Revision, SessionSeen
from tests.history.reading import entry_of, revision_of

HISTORY = f"CHAOS_{app.namespace}_HISTORY"
_TRIES = 3
_PAGE = 500
_LOOK_SECONDS = 0.3
_NO_MESSAGES, _NOBODY = "404", "503"
_UNKNOWN_SECONDS = 10.0
"""So long may members of a cluster not know a consumer that one of them has made."""


async def set_up(stores: Stores) -> None:
    """Make the stream that keeps every revision: it sources the runs bucket, so nothing of Tenure knows of it."""
    source = {"name": stores.names.runs_stream, "filter_subject": stores.names.runs_prefix + ">"}
    await _api(
        stores,
        f"STREAM.CREATE.{HISTORY}",
        {"name": HISTORY, "sources": [source], "storage": "file", "num_replicas": app.config.replicas},
    )


async def owing(stores: Stores) -> dict[str, str]:
    """Every key that is not at rest, and every message in the work stream: what it is. The schedule owes what is late of it."""
    found: dict[str, str] = {CHIME: "it never began"}

    def on_header(header: Header) -> None:
        state = read_state(header.state)
        now = stores.clock.now()
        if state is not None and (state.is_over(now) or (header.key == CHIME and state.due > now - CHIME_LATE_SECONDS)):
            found.pop(header.key, None)
            return  # the one is gone, the other goes on
        if header.key == CHIME or state is None or state.phase not in TERMINAL or state.flags:
            found[header.key] = header.state

    await stores.runs.scan(on_header, _PAGE)
    if (await _api(stores, f"STREAM.INFO.{stores.names.inbox_stream}", {}))["state"]["messages"]:
        found["inbox"] = "commands are not applied yet"
    found |= await _places(stores)
    return found | dict.fromkeys(await work_left(stores), "stored")


async def _places(stores: Stores) -> dict[str, str]:
    """Limits of which a place is taken, by whom. What is kept at a rate is over by itself."""
    patience = stores.runs.patience()
    found: dict[str, str] = {}
    for name in await stores.limits.names(patience):
        entry = (await stores.limits.read(name, patience)).entry
        if entry is not None and entry.permits:
            found[f"limit {name}"] = f"places are taken: {entry.permits}"
    return found


async def resume_all(stores: Stores) -> None:
    """Nothing is paused or blocked any more, whoever had it so."""
    await stores.switches.change(lambda _board: Board(), stores.runs.patience())


async def wait_until_quiet(stores: Stores, seconds: float, still_well: Callable[[], None]) -> dict[str, str]:
    """Wait until nothing is owed any more; what is still owed when so many seconds have made it no less.

    Not for so many seconds in all: what waits for a place under a limit may take longer, and then has to go on.
    """
    loop = asyncio.get_running_loop()
    until, least = loop.time() + seconds, math.inf
    left: dict[str, str] = {"": "the server was never read"}
    while True:
        still_well()
        try:
            await resume_all(stores)
            left = await owing(stores)
        except TenureError as error:
            left = {"": f"the server cannot be read: {error}"}
        else:
            if len(left) < least:
                until, least = loop.time() + seconds, len(left)
        if not left or loop.time() > until:
            return left
        await asyncio.sleep(_LOOK_SECONDS)  # paused: between two looks


async def work_left(stores: Stores) -> list[str]:
    """Subjects of what is stored in the work stream, but for the schedule that goes on."""
    info = await _api(stores, f"STREAM.INFO.{stores.names.work_stream}", {"subjects_filter": ">"})
    chime = encode_key(CHIME)
    return sorted(subject for subject in info["state"].get("subjects") or () if chime not in subject.split("."))


async def records(stores: Stores) -> dict[str, Revision]:
    """Every record that is stored."""
    names = stores.names
    found = {}
    async for msg, seq, at in _messages(stores, names.runs_stream, "last_per_subject", names.runs_prefix + "*"):
        if not _is_mark(msg):
            key = decode_key(msg.subject[len(names.runs_prefix) :])
            found[key] = revision_of(decode(msg.data), key=key, seq=seq, before=-1, stored=at)
    return found


async def letters(stores: Stores) -> list[str]:
    """The run id of every dead letter."""
    names = stores.names
    found = _messages(stores, names.dead_stream, "all", names.dead_filter(None, None, None))
    return [msg.subject.rpartition(".")[2] async for msg, _, _ in found]


async def rejected(stores: Stores) -> set[str]:
    """The id of every command of the inbox that was rejected."""
    found = _messages(stores, stores.names.dead_stream, "all", stores.names.rejected("*"))
    return {msg.subject.rpartition(".")[2] async for msg, _, _ in found}


async def fenced(stores: Stores) -> list[HolderSeen]:
    """Of whom the history was told that their outcome was refused as another attempt's."""
    told = [decode_refusal(msg.data) async for msg, _, _ in _messages(stores, stores.names.refused_stream, "all")]
    return [HolderSeen(one.who, one.run_id, one.attempt) for one in told if one.where == "tail" and one.why == FENCED]


async def sessions(stores: Stores) -> list[SessionSeen]:
    """Every session's entry."""
    found = []
    async for msg, _, at in _messages(
        stores, stores.names.sessions_stream, "last_per_subject", stores.names.session("*")
    ):
        session = decode_session(msg.data)
        found.append(
            SessionSeen(id=session.id, kind=session.kind, pid=session.pid, closed=session.closed, stored_at=at)
        )
    return found


async def revisions(
    stores: Stores, seen: dict[int, Revision], entries: dict[int, EntrySeen], now: dict[str, Revision]
) -> tuple[list[Revision], int]:
    """Every revision: those ``seen`` as events, those that only the history has, those stored ``now``; and how many none has.

    Adds to ``entries`` what only the history has.
    """
    names = stores.names
    info = await _api(stores, f"STREAM.INFO.{names.runs_stream}", {})
    last = int(info["state"]["last_seq"])
    for _ in range(100):
        history = await _api(stores, f"STREAM.INFO.{HISTORY}", {})
        if all(source["lag"] == 0 for source in history["sources"]):
            break
        await asyncio.sleep(_LOOK_SECONDS)  # paused: between two looks
    async for msg, _, _ in _messages(stores, HISTORY, "all"):
        headers = msg.headers or {}
        seq = int(headers["Nats-Stream-Source"].split(" ")[1])
        token = msg.subject[len(names.runs_prefix) :]
        if seq > last or seq in seen or seq in entries:
            continue  # of what is newer the history has only what was not overwritten before it got there
        entry = entry_of(token, msg.data, seq=seq, stored=0.0, gone=_is_mark(msg))
        if entry is not None:
            entries[seq] = entry
            continue
        before = -1 if _is_mark(msg) else int(headers.get("Nats-Expected-Last-Subject-Sequence", "-1"))
        key = decode_key(token)
        seen[seq] = revision_of(
            None if _is_mark(msg) else decode(msg.data),
            key=key,
            seq=seq,
            before=before,
        )
    for record in now.values():
        seen.setdefault(record.seq, record)
    # What expires while this reads is stored after `last`: it may be among the seen, and makes up for no other.
    return [seen[seq] for seq in sorted(seen)], last - sum(seq <= last for seq in (*seen, *entries))


async def _messages(
    stores: Stores, stream: str, deliver: str, subject: str = ">"
) -> AsyncIterator[tuple[Msg, int, float]]:
    """Every message of a stream with its sequence and when it was stored. Raises Unavailable if the server breaks off.

    Only that there are no more is the end: what was not read would be taken for what is not there.
    """
    conn = stores.conn
    inbox = conn.new_inbox()
    name = "c" + inbox.rpartition(".")[2]
    arrived: asyncio.Queue[Msg] = asyncio.Queue()

    async def received(msg: Msg) -> None:
        arrived.put_nowait(msg)

    config = {
        "name": name,
        "ack_policy": "none",
        "deliver_policy": deliver,
        "filter_subject": subject,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 30_000_000_000,
    }
    subscription = await conn.subscribe(inbox, received)
    try:
        await _api(stores, f"CONSUMER.CREATE.{stream}.{name}.{subject}", {"stream_name": stream, "config": config})
        pull = msgspec.json.encode({"batch": _PAGE, "no_wait": True})
        until = asyncio.get_running_loop().time() + _UNKNOWN_SECONDS
        while True:
            await conn.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", pull, reply=inbox)
            for _ in range(_PAGE):
                async with asyncio.timeout(10.0):
                    msg = await arrived.get()
                status = (msg.headers or {}).get("Status", "")
                if status == _NO_MESSAGES:
                    return
                if status == _NOBODY and asyncio.get_running_loop().time() < until:
                    await asyncio.sleep(_LOOK_SECONDS)  # paused: until it is known everywhere
                    break
                ack = parse_ack(msg.reply)
                if status or ack is None:
                    raise Unavailable(f"a read of {stream} was broken off: {status}")
                yield msg, ack.stream_sequence, ack.stored_at
    finally:
        await conn.unsubscribe(subscription)


def _is_mark(msg: Msg) -> bool:
    headers = msg.headers or {}
    return "KV-Operation" in headers


async def _api(stores: Stores, call: str, body: dict[str, Any]) -> dict[str, Any]:
    """Asked again if nothing comes back: right after an election a cluster forgets some. Twice does no harm."""
    for tries in reversed(range(_TRIES)):
        try:
            answer = await stores.conn.api(call, body, timeout=10.0)
            break
        except (NotSent, Lost) as error:
            if not tries:
                raise Unavailable(f"{call}: {error}") from error
    if isinstance(answer, ApiError):
        raise Unavailable(f"{call}: {answer.description}")
    return answer
