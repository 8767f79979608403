"""What the connection promises holds on nats-py's own client, on the quick one and on the one in memory alike."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from nats.aio.msg import Msg

from tenure import Config
from tenure.core.errors import InvalidCall
from tenure.nats import wire
from tenure.nats.connection import Connection, Lost, NotSent
from tenure.nats.memory import MemoryServer
from tenure.testing import nats_server
from tests.support import wait_until


@pytest.fixture(scope="module")
def real_server() -> Iterator[str]:
    """Url of a real server: which client talks to it is what differs here."""
    with nats_server() as url:
        yield url


@pytest.fixture(params=["quick", "plain", "memory"])
async def conn(
    request: pytest.FixtureRequest, real_server: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Connection]:
    if request.param == "plain":
        monkeypatch.setattr(wire, "TESTED", ("never",))
    with MemoryServer(namespace) as memory:
        url = memory.url if request.param == "memory" else real_server
        conn = await Connection.open(url, Config(request_timeout_seconds=2.0), name="wire")
        assert isinstance(conn.raw, wire.QuickClient) == (request.param != "plain")
        yield conn
        await conn.close()


class Inbox:
    """A subscription of its own that keeps what comes."""

    def __init__(self) -> None:
        self.got: list[Msg] = []

    async def received(self, msg: Msg) -> None:
        self.got.append(msg)


async def listen(conn: Connection) -> tuple[str, Inbox]:
    inbox, subject = Inbox(), conn.new_inbox()
    await conn.subscribe(subject, inbox.received)
    return subject, inbox


async def test_headers_payload_and_reply_arrive_as_they_were_sent(conn: Connection) -> None:
    subject, inbox = await listen(conn)
    await conn.publish(subject, "grün\r\n".encode(), reply="some.where", headers={"One": "1", "Two": "zwei ü"})
    await conn.publish(subject)
    await wait_until(lambda: len(inbox.got) == 2, description="both")
    first, second = inbox.got
    assert (first.data, first.reply, first.headers) == (
        "grün\r\n".encode(),
        "some.where",
        {"One": "1", "Two": "zwei ü"},
    )
    assert (second.data, second.reply, second.headers) == (b"", "", None)


async def test_a_header_cannot_smuggle_in_another_header_or_a_message(conn: Connection) -> None:
    subject, inbox = await listen(conn)
    await conn.publish(subject, b"x", headers={"A": f"1\r\nB: 2\r\n\r\nPUB {subject} 1\r\ny"})
    await conn.publish(subject, b"last")
    await wait_until(lambda: inbox.got and inbox.got[-1].data == b"last", description="the last")
    assert [msg.data for msg in inbox.got] == [b"x", b"last"]
    assert list(inbox.got[0].headers or {}) == ["A"]


async def test_a_subject_with_white_space_is_not_sent(conn: Connection) -> None:
    for subject in ("a b", "a\r\nPING", "", "a\tb"):
        with pytest.raises(NotSent):
            await conn.request(subject, b"")
    assert await conn.api("INFO", {})


async def test_an_answer_of_nobody_means_that_nothing_happened(conn: Connection) -> None:
    with pytest.raises(NotSent):
        await conn.request("tenure.nobody.listens", b"?")


async def test_an_answer_with_headers_keeps_them(conn: Connection) -> None:
    async def answer(msg: Msg) -> None:
        await conn.publish(msg.reply, b"yes", headers={"How": "gladly"})

    subject = conn.new_inbox()
    await conn.subscribe(subject, answer)
    got = await conn.request(subject, b"?")
    assert (got.data, got.headers) == (b"yes", {"How": "gladly"})


async def test_what_is_over_the_limit_is_refused_and_the_connection_stays(conn: Connection) -> None:
    with pytest.raises(InvalidCall):
        await conn.request("a", b"x" * (conn.max_payload + 1))
    assert conn.is_connected
    assert await conn.api("INFO", {})


async def test_answers_find_their_requests_whatever_their_number_and_size(conn: Connection) -> None:
    """A thousand at once, some longer than what is read in one go and than what may wait to be written."""

    async def echo(msg: Msg) -> None:
        await conn.publish(msg.reply, msg.data)

    subject = conn.new_inbox()
    await conn.subscribe(subject, echo)
    sent = [b"%d:" % n + b"x" * (200_000 if n % 50 == 0 else n) for n in range(1_000)]
    answers = await asyncio.gather(*(conn.request(subject, data) for data in sent))
    assert [answer.data for answer in answers] == sent


async def test_who_listens_hears_everything_and_its_own_fault_costs_it_nothing_more(conn: Connection) -> None:
    """Small and large, with headers and without; an exception is told like that of any subscription, and the next one comes."""
    heard: list[tuple[dict[str, str], bytes]] = []
    sent: list[tuple[dict[str, str] | None, bytes]] = [
        (None, b"one"),
        ({"Nats-Sequence": "7", "X": "y"}, b"two"),
        (None, b"fail"),
        ({"X": "y"}, b"3" * 200_000),
        ({"Tenure-Key": "k", "tenure-key": "l"}, b"four"),
        (None, b""),
    ]

    async def hear(msg: Msg) -> None:
        heard.append((dict(msg.headers or {}), msg.data))
        if msg.data == b"fail":
            raise ValueError("it has failed")

    subject = conn.new_inbox()
    ear = await conn.listen(subject, hear)
    for headers, data in sent:
        await conn.publish(subject, data, headers=headers)
    await wait_until(lambda: len(heard) == len(sent), description="heard")
    assert [data for _, data in heard] == [data for _, data in sent]
    assert [headers for headers, _ in heard[:4]] == [headers or {} for headers, _ in sent[:4]]
    assert wire.BROKEN_HEADERS in heard[4][0]
    assert conn.last_error == "it has failed"
    await conn.unsubscribe(ear)
    await conn.publish(subject, b"late")
    await conn.api("INFO", {})
    assert len(heard) == len(sent)
    assert conn.is_connected


async def test_a_connection_closes_and_drains_with_who_listens(conn: Connection) -> None:
    heard: list[bytes] = []

    async def hear(msg: Msg) -> None:
        heard.append(msg.data)

    drained = await conn.listen(conn.new_inbox(), hear)
    await conn.publish(drained.subject, b"last")
    await conn.drain(drained)
    assert heard == [b"last"]
    await conn.listen(conn.new_inbox(), hear)
    await conn.close()
    assert not conn.is_connected


@asynccontextmanager
async def crowded(conn: Connection, monkeypatch: pytest.MonkeyPatch, waiting: int = 0) -> AsyncIterator[None]:
    """The connection takes nothing more, and more waits to be written than may; so do ``waiting`` others."""
    goes_on, stuck = asyncio.Event(), asyncio.Event()

    async def drain() -> None:
        stuck.set()
        await goes_on.wait()

    monkeypatch.setattr(conn.raw._transport, "drain", drain)
    await conn.publish("tenure.nobody")
    await stuck.wait()
    loud = [asyncio.create_task(conn.publish("tenure.nobody", b"x" * 1_000_000)) for _ in range(3)]
    await wait_until(lambda: conn.raw.pending_data_size > 2 * 2**20, description="it is crowded")
    loud += [asyncio.create_task(conn.publish("tenure.nobody")) for _ in range(waiting)]
    await asyncio.sleep(0)  # paused: until they have begun to wait
    try:
        yield
    finally:
        goes_on.set()
        await asyncio.gather(*loud)


@pytest.mark.parametrize("waiting", [0, 1_100])  # more than nats-py's queue for its flusher has room for
async def test_who_listens_keeps_nobody_from_hearing_while_the_connection_is_crowded(
    conn: Connection, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    heard: list[bytes] = []
    subject, inbox = await listen(conn)

    async def hear(msg: Msg) -> None:
        await conn.publish("tenure.nobody", b"hint")
        heard.append(msg.data)

    ear = await conn.listen(conn.new_inbox(), hear)
    await conn.api("INFO", {})
    other = await Connection.open(conn._url, Config(), name="other")
    async with crowded(conn, monkeypatch, waiting):
        await other.publish(ear.subject, b"1")
        await other.publish(subject, b"2")
        await wait_until(lambda: inbox.got, description="others hear", timeout=2)
    await wait_until(lambda: heard == [b"1"], description="what it had to write goes out")
    await other.close()


@pytest.mark.parametrize("waiting", [0, 1_100])
async def test_half_a_message_ends_with_its_connection_however_crowded_that_was(
    real_server: str, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    """Else who listens got it together with what the next connection begins with."""
    conn, heard = await Connection.open(real_server, Config(), name="wire"), list[bytes]()

    async def hear(msg: Msg) -> None:
        heard.append(msg.data)
        await conn.publish("tenure.nobody", b"hint")

    ear, raw = await conn.listen(conn.new_inbox(), hear), conn.raw
    async with crowded(conn, monkeypatch, waiting):
        one, half = (f"MSG {ear.subject} {ear._id} {text}".encode() for text in ("1\r\n1\r\n", "30\r\nhalf"))
        raw._transport._io_reader.feed_data(one + half)  # type: ignore[union-attr]  # TCP's has it
        await wait_until(lambda: heard, description="the whole one is heard")
        await raw._process_op_err(ConnectionResetError())
        await wait_until(lambda: not conn.is_connected, description="it breaks")
    await wait_until(lambda: conn.is_connected, description="another one")
    await conn.publish(ear.subject, b"2" * 30)
    await wait_until(lambda: len(heard) > 1, description="what comes on the next one")
    assert heard == [b"1", b"2" * 30]
    assert conn.raw.stats["reconnects"] == 1
    await conn.close()


async def test_who_waits_for_a_crowded_connection_can_be_cancelled(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nats-py's own takes the cancellation for the end of its wait, and what was cancelled goes on."""
    async with crowded(conn, monkeypatch):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await conn.request("tenure.nobody", b"?")
    assert await conn.api("INFO", {})


async def test_what_was_cancelled_on_a_crowded_connection_leaves_no_subscription(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[bytes] = []

    async def hear(msg: Msg) -> None:
        got.append(msg.data)

    known, inbox = len(conn.raw._subs), conn.new_inbox()
    async with crowded(conn, monkeypatch):
        for subscribe in (conn.listen, conn.subscribe) * 5:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await conn.unsubscribe(await subscribe(inbox, hear))
                    await asyncio.sleep(1.0)  # body: whoever subscribed goes on to other things, and is cancelled there
    assert len(conn.raw._subs) == known
    with pytest.raises(NotSent, match="nobody answers"):
        await conn.request(inbox, b"?")
    assert got == []


async def test_nobody_waits_to_subscribe_where_it_is_crowded(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for anything else but a message of its own: a ping, say, by which a server that stands still is noticed."""

    async def hear(_msg: Msg) -> None: ...

    async def subscribe() -> None:
        for _ in range(1_100):  # more than nats-py's queue for its flusher has room for
            await conn.unsubscribe(await conn.listen(conn.new_inbox(), hear))

    async with crowded(conn, monkeypatch):
        subscribing = asyncio.create_task(subscribe())
        await asyncio.wait({subscribing}, timeout=5.0)
        assert subscribing.done()
    assert await conn.api("INFO", {})


async def test_a_request_on_a_crowded_connection_waits_no_longer_than_its_timeout(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    async with crowded(conn, monkeypatch):
        begun = loop.time()
        with pytest.raises(Lost):
            await conn.request("tenure.nobody", b"?", timeout=0.2)
        assert loop.time() - begun < 1.5  # less than what waits for room in general
    assert await conn.api("INFO", {})
