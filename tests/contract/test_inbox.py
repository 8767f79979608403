"""The inbox stream: what it refuses in its answer, where a command lies, and what is found though nobody delivers it."""

from __future__ import annotations

import pytest
from nats.aio.msg import Msg

from tenure.core.marks import Place, command_id
from tenure.nats.inbox import CONSUMER, InboxLane, Message
from tenure.stores import Stores
from tests.contract.asked import Puller
from tests.deposed import Deposed
from tests.support import wait_until


class Taken:
    """A lane of the inbox and what it has delivered."""

    def __init__(self, stores: Stores) -> None:
        self.messages: list[Message] = []
        self.lane = InboxLane(
            stores.conn,
            stores.names,
            stores.inbox,
            clock=stores.clock,
            on_message=self._took,
            on_crash=lambda: None,
        )

    async def _took(self, message: Message) -> None:
        self.messages.append(message)

    async def next(self, number: int = 1) -> Message:
        await self.lane.want(1)
        await wait_until(lambda: len(self.messages) >= number, description=f"{number} commands")
        return self.messages[-1]


def subject(stores: Stores, what: str = "submit.a") -> str:
    return f"{stores.names.root}.{what}"


async def gone(stores: Stores, place: Place) -> None:
    async def looked() -> bool:
        return not await stores.inbox.holds(place, stores.runs.patience())

    await wait_until(looked, description="the message is removed")


async def test_a_command_is_held_until_it_is_acknowledged_and_keeps_its_place_when_delivered_again(
    stores: Stores,
) -> None:
    taken = Taken(stores)
    await taken.lane.open()
    ack = await stores.conn.put(subject(stores), b"{}", {"Tenure-Key": "k", "Nats-Msg-Id": "m"})
    first = await taken.next()
    assert (first.subject, first.data, first.deliveries) == (subject(stores), b"{}", 1)
    assert (first.headers["Tenure-Key"], first.place.sequence) == ("k", ack.seq)
    assert await stores.inbox.holds(first.place, stores.runs.patience())
    assert (await stores.inbox.ends(stores.runs.patience()))[0] == ack.seq
    await stores.inbox.nak(first)
    second = await taken.next(2)
    assert (second.place, second.deliveries) == (first.place, 2)
    await stores.inbox.ack(second)
    await gone(stores, second.place)
    assert (await stores.inbox.ends(stores.runs.patience()))[0] == ack.seq + 1
    await taken.lane.close()


async def acknowledged_up_to_here(stores: Stores) -> None:
    """The consumer takes all that is stored for acknowledged, as after a kill of the server; it is stored all the same."""
    stream = stores.names.inbox_stream
    await stores.conn.api(f"CONSUMER.DELETE.{stream}.{CONSUMER}", {})
    only = {"durable_name": CONSUMER, "ack_policy": "explicit", "filter_subject": subject(stores, "cancel")}
    await stores.conn.api(f"CONSUMER.DURABLE.CREATE.{stream}.{CONSUMER}", {"stream_name": stream, "config": only})
    await stores.conn.put(subject(stores, "cancel"), b"")
    puller = Puller(stores.conn)
    subscription = await stores.conn.subscribe(puller.inbox, puller.received)
    await puller.ask(stream, CONSUMER, batch=1)
    (last,) = await puller.next()
    await stores.conn.unsubscribe(subscription)
    message = stores.inbox.open(last)
    assert message is not None
    await stores.inbox.ack(message)
    await gone(stores, message.place)
    await stores.inbox.ensure_consumer()


async def test_a_command_has_one_id_whether_it_is_delivered_or_found_as_a_stray(stores: Stores) -> None:
    """[15] delivered, applied, its ack half lost; taken for a stray, at a time that was rounded: a second run, of a second key."""
    patience, number = stores.runs.patience(), 12  # of so many times one at least is nearer to the next microsecond
    for _ in range(number):
        await stores.conn.put(subject(stores), b"{}")
    taken = Taken(stores)
    await taken.lane.open()
    await taken.lane.want(number)
    await wait_until(lambda: len(taken.messages) == number, description="they are delivered")
    await taken.lane.close()
    await acknowledged_up_to_here(stores)
    strays: list[Message] = []
    for delivered in taken.messages:
        assert await stores.inbox.holds(delivered.place, patience)
        left = await stores.inbox.strays(1, number, patience)
        assert len(left) == number - len(strays)
        assert await stores.inbox.strays(left[0].place.sequence + 1, 2, patience) == left[1:3]
        strays.append(left[0])
        await stores.inbox.ack(left[0])
    ids = [[command_id(one.subject, None, None, one.place) for one in some] for some in (taken.messages, strays)]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == number
    assert await stores.inbox.strays(1, number, patience) == []


async def test_another_message_in_the_same_place_is_not_the_command(stores: Stores) -> None:
    """The stream was deleted and made again: it counts from 1 anew."""
    ack = await stores.conn.put(subject(stores), b"{}")
    patience = stores.runs.patience()
    assert not await stores.inbox.holds(Place(ack.seq, 1_000), patience)
    assert not await stores.inbox.holds(Place(0, 0), patience)


@pytest.mark.parametrize("others", ["none", "older"])
async def test_that_a_command_is_gone_is_believed_of_nobody_who_has_never_had_it(
    stores: Stores, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was deposed before it was stored says that there is no such message, as any does after its ack."""
    patience, stream, conn = stores.runs.patience(), stores.names.inbox_stream, stores.conn
    if others == "older":
        await conn.put(subject(stores), b"{}")
    number = 2 if others == "older" else 1
    deposed = Deposed(conn, monkeypatch)
    await deposed.sees(f"STREAM.MSG.GET.{stream}", {"seq": number})
    await deposed.sees(f"STREAM.INFO.{stream}")
    taken = Taken(stores)
    await taken.lane.open()
    assert (await conn.put(subject(stores), b"{}")).seq == number
    for one in range(1, number + 1):
        message = await taken.next(one)
    for left in (1, 2, 4):
        deposed.left = left
        assert await stores.inbox.holds(message.place, patience)
        assert not deposed.left
    await stores.inbox.ack(message)
    await gone(stores, message.place)
    deposed.left = 4
    assert not await stores.inbox.holds(message.place, patience)
    await taken.lane.close()


async def test_where_there_is_no_inbox_nothing_is_held(stores: Stores) -> None:
    await stores.conn.api(f"STREAM.DELETE.{stores.names.inbox_stream}", {})
    assert not await stores.inbox.holds(Place(1, 1), stores.runs.patience())
    assert (await stores.inbox.ends(stores.runs.patience()))[0] == 0


@pytest.mark.parametrize(
    "headers",
    [{"Nats-TTL": "1s"}, {"Nats-Rollup": "all"}, {"Nats-Rollup": "sub"}, {"Nats-Schedule": "@at 2099-01-01T00:00:00Z"}],
)
async def test_a_header_that_acts_on_messages_is_refused_in_the_answer(stores: Stores, headers: dict[str, str]) -> None:
    first = await stores.conn.put(subject(stores), b"{}")
    target = {"Nats-Schedule-Target": subject(stores, "submit.b")} if "Nats-Schedule" in headers else {}
    ack = await stores.conn.put(subject(stores), b"{}", headers | target)
    assert ack.error is not None
    assert (await stores.inbox.ends(stores.runs.patience()))[0] == first.seq


async def test_the_subjects_beside_it_are_not_the_inbox(stores: Stores) -> None:
    got: list[str] = []

    async def received(msg: Msg) -> None:
        got.append(msg.subject)

    beside = [
        subject(stores, other) for other in ("submit", "submit.a.b", "cancel.a", "api.submit.a", "known.submit.a")
    ]
    await stores.conn.subscribe(subject(stores, ">"), received)
    for other in beside:
        await stores.conn.publish(other, b"{}")
    await wait_until(lambda: got == beside, description="they are delivered to whoever listens")
    info = await stores.conn.api(f"STREAM.INFO.{stores.names.inbox_stream}", {})
    assert isinstance(info, dict)
    assert info["state"]["messages"] == 0
    assert stores.names.parse_command(subject(stores, "submit.a")) == ("submit", "a")
    assert stores.names.parse_command(subject(stores, "cancel")) == ("cancel", "")
    for foreign in ("submit", "submit.", "submit.a.b", "cancel.a", "status", "work.a"):
        assert stores.names.parse_command(subject(stores, foreign)) == ("", "")
    assert stores.names.parse_command("elsewhere.submit.a") == ("", "")
