"""Contract of the work stream.

Wake-ups and timers, which decide nothing and get lost only when they are acknowledged.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from tenure.core.errors import Unavailable
from tenure.core.policy import SHORT_DELAY, TIMER_LEAD
from tenure.core.records import encode
from tenure.nats.patience import Patience
from tenure.nats.runs import Committed, Found
from tenure.nats.work import Work
from tenure.stores import Stores
from tests.contract.support import connect, depth, is_empty, proxied, pull, submitted
from tests.support import wait_until

SOON = SHORT_DELAY + 0.2


async def wake(stores: Stores, made: Committed, *, data: bytes | None = None) -> None:
    record = made.record
    await stores.work.wake(
        record, made.data if data is None else data, made.revision, stores.clock.now(), Patience(stores.clock, 3.0)
    )


async def test_a_wake_up_brings_its_record_so_that_a_claim_needs_no_read(stores: Stores):
    made = await submitted(stores, "any key *", args={"n": 1})
    await wake(stores, made)
    async with pull(stores) as pulled:
        got = await pulled.next()
        assert got.to == ("default", "normal", "any key *", made.record.run_id)
        assert got.found == Found(made.record, made.revision)
        assert (got.generation, got.deliveries) == (1, 1)
        assert await stores.work.is_stored(made.record)
        await stores.work.ack(got.reply)
        await wait_until(lambda: is_empty(stores), description="an acknowledged wake-up is gone")
        assert not await stores.work.is_stored(made.record)


async def _empty(stores: Stores) -> bool:
    return await depth(stores) == 0


async def test_a_large_record_stays_at_home(stores: Stores):
    made = await submitted(stores, args={"text": "x" * stores.config.wake_limit_bytes})
    await wake(stores, made)
    async with pull(stores) as pulled:
        got = await pulled.next()
        assert got.found is None
        assert got.generation == 1


async def test_two_copies_of_a_wake_up_are_both_delivered(stores: Stores):
    """No message id: a repair inside the duplicate window would be acknowledged and not stored [25]."""
    made = await submitted(stores)
    await wake(stores, made)
    await wake(stores, made)
    async with pull(stores) as pulled:
        assert (await pulled.next()).subject == (await pulled.next()).subject
        assert await depth(stores) == 2


async def test_a_terminated_message_never_comes_again(stores: Stores):
    await wake(stores, await submitted(stores))
    async with pull(stores) as pulled:
        await stores.work.term((await pulled.next()).reply, "a reason with spaces")
        await wait_until(lambda: is_empty(stores), description="a terminated message is gone")


async def test_pending_counts_what_waits_and_what_is_in_hand(stores: Stores):
    """Soon: the server's consumer hears of a message after its publisher has the PubAck."""

    async def is_pending(wanted: tuple[int, int]) -> bool:
        return await stores.work.pending("default", "normal") == wanted

    await stores.work.ensure_consumer("default", "normal")
    for n in range(5):
        await wake(stores, await submitted(stores, f"k{n}"))
    await wait_until(partial(is_pending, (5, 0)), description="five wait")
    async with pull(stores, wanted=2) as pulled:
        await pulled.next()
        await pulled.next()
        await wait_until(partial(is_pending, (3, 2)), description="three wait, two are in hand")
    with pytest.raises(Unavailable):
        await stores.work.pending("nowhere", "normal")


async def test_a_thousand_unanswered_wake_ups_do_not_stop_the_queue(stores: Stores):
    """The server's default stops at 1,000 acks pending, naked and delayed ones included [26]."""
    made = [await submitted(stores, f"k{n}") for n in range(25)]
    for _ in range(41):
        await asyncio.gather(*(wake(stores, one) for one in made))
    async with pull(stores, wanted=2_000) as pulled:
        await wait_until(lambda: len(pulled.at) == 41 * 25, description="all are delivered, none is answered")


async def test_ensuring_a_consumer_twice_changes_nothing_and_new_settings_are_taken_over_and_told(
    stores: Stores, nats_server: str, namespace: str, caplog: pytest.LogCaptureFixture
):
    await stores.work.ensure_consumer("default", "normal")
    await stores.work.ensure_consumer("default", "normal")
    assert not caplog.records
    async with connect(nats_server, namespace, replace(stores.config, ack_wait_seconds=7.0)) as other:
        await other.work.ensure_consumer("default", "normal")
    (said,) = caplog.records
    assert "consumer.changed" in said.getMessage()
    assert "ack_wait_seconds=7.0" in said.getMessage()
    info = await stores.conn.api(f"CONSUMER.INFO.{stores.names.work_stream}.default-normal", {})
    assert isinstance(info, dict)
    assert info["config"]["ack_wait"] == 7_000_000_000


async def test_a_shorter_ack_wait_holds_for_what_is_in_hand_already(stores: Stores, nats_server: str, namespace: str):
    """A namespace whose consumer an older Tenure made with 15 s: what its workers were given does not wait for that."""
    long = replace(stores.config, ack_wait_seconds=15.0)
    async with connect(nats_server, namespace, long) as older:
        await wake(stores, await submitted(stores))
        async with pull(older, wanted=1) as pulled:
            await pulled.next()
            given = stores.clock.steady()
    async with pull(stores) as pulled:
        assert (await pulled.next(stores.config.ack_wait_seconds + 2.0)).deliveries == 2
        assert stores.clock.steady() - given >= stores.config.ack_wait_seconds * 0.9


# -- timers ----------------------------------------------------------------------------------------------------------


async def test_what_is_due_later_fires_by_itself_a_little_early_and_leaves_no_schedule(stores: Stores):
    """Half a second early, because the server may be late: the receiver hands it back for the rest."""
    due = stores.clock.now() + SOON
    made = await submitted(stores, due=due)
    await wake(stores, made)
    assert await stores.work.is_stored(made.record)
    async with pull(stores) as pulled:
        assert await depth(stores) == 1
        got = await pulled.next()
        assert due - TIMER_LEAD - 0.1 <= stores.clock.now() < due
        assert got.to == ("default", "normal", "k", made.record.run_id)
        assert got.found == Found(made.record, made.revision)
        assert await stores.work.is_stored(made.record)
        await stores.work.ack(got.reply)
        await wait_until(lambda: is_empty(stores), description="neither schedule nor wake-up is left")
        assert not await stores.work.is_stored(made.record)


async def test_each_attempt_has_a_timer_of_its_own(stores: Stores):
    """A schedule that replaces one just firing is purged with it: so no subject is ever used twice."""
    made = await submitted(stores, due=stores.clock.now() + SOON)
    later = replace(made.record, attempt=1)
    patience = Patience(stores.clock, 3.0)
    await wake(stores, made)
    await stores.work.wake(later, encode(later), made.revision, stores.clock.now(), patience)
    assert await depth(stores) == 2
    async with pull(stores) as pulled:
        got = [await pulled.next(), await pulled.next()]
        assert {g.found.record.attempt for g in got if g.found and g.found.record} == {0, 1}


async def test_what_is_due_within_two_seconds_is_a_wake_up_at_once(stores: Stores):
    """A schedule takes at least a quarter of a second: the receiver hands it back for the rest instead."""
    made = await submitted(stores, due=stores.clock.now() + SHORT_DELAY - 0.5)
    await wake(stores, made)
    async with pull(stores) as pulled:
        assert (await pulled.next(0.5)).found == Found(made.record, made.revision)


# -- what may lie in the stream --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    ["garbage", "empty", "no record", "not a record", "no text", "head is no text", "binary", "another bucket's"],
)
async def test_a_payload_that_cannot_be_used_is_looked_up(kind: str, stores: Stores):
    """The subject says whom it is about; the record is then read.

    Revisions of another bucket mean nothing here [12].
    """
    made = await submitted(stores)
    head = b'{"i":"%s","g":1,"r":%d}\n'
    here = stores.work.incarnation.encode()
    payload = {
        "garbage": b"garbage",
        "empty": b"",
        "no record": head % (here, made.revision),
        "not a record": head % (here, made.revision) + b'{"schema":1}',
        "no text": head % (here, made.revision) + b'{"schema":1,"key":"\xff"}',
        "head is no text": b'{"i":"\xff","g":1,"r":1}\n{}',
        "binary": bytes(range(256)),
        "another bucket's": head % (b"01JANOTHER", made.revision) + made.data,
    }[kind]
    subject = stores.names.work("default", "normal", "k", made.record.run_id)
    await stores.conn.put(subject, payload)
    async with pull(stores) as pulled:
        got = await pulled.next()
        assert got.to is not None
        assert got.to.key == "k"
        assert got.found is None


async def test_a_record_under_another_keys_subject_is_not_believed(stores: Stores):
    """Neither another key's nor another run's."""
    one, other = await submitted(stores, "one"), await submitted(stores, "other")
    head = b'{"i":"%s","g":1,"r":%d}\n' % (stores.work.incarnation.encode(), one.revision)
    await stores.conn.put(stores.names.work("default", "normal", "other", other.record.run_id), head + one.data)
    await stores.conn.put(stores.names.work("default", "normal", "one", "01JANOTHERRUN"), head + one.data)
    async with pull(stores) as pulled:
        assert [(await pulled.next()).found, (await pulled.next()).found] == [None, None]


async def test_a_newer_record_in_a_wake_up_is_not_taken_for_what_the_bucket_holds(stores: Stores):
    """By now the bucket may hold another one, or nothing at all: it is looked up."""
    made = await submitted(stores)
    await wake(stores, made, data=msgspec.json.encode({"schema": 99, "later": True}))
    async with pull(stores) as pulled:
        got = await pulled.next()
        assert got.to is not None
        assert got.found is None


@pytest.mark.parametrize("tail", ["", ".k.r", ".=zz", ".=", ".a=4"])
async def test_a_subject_that_names_no_run_is_foreign(tail: str, stores: Stores):
    await stores.conn.put(f"{stores.names.work_prefix}default.normal{tail}.x", b"")
    async with pull(stores) as pulled:
        assert (await pulled.next()).to is None


# -- unknown fate ----------------------------------------------------------------------------------------------------


async def test_a_wake_up_is_repeated_until_the_server_has_it(nats_server: str, namespace: str):
    """A copy too many is harmless, one too few is a key that nothing wakes."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        made = await submitted(stores)
        lost = proxy.lose_answer(lambda p: p.subject.startswith(stores.names.work_prefix))
        await wake(stores, made)
        assert len(lost.hits) == 1
        assert await depth(stores) == 2


async def test_a_wake_up_that_cannot_be_stored_is_unavailable_and_look_ups_say_so_too(nats_server: str, namespace: str):
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        made = await submitted(stores)
        await proxy.take_down()
        await wait_until(lambda: not stores.conn.is_connected, description="noticed")
        work: Work = stores.work
        with pytest.raises(Unavailable):
            await work.wake(made.record, made.data, made.revision, stores.clock.now(), Patience(stores.clock, 0.2))
        with pytest.raises(Unavailable):
            await work.is_stored(made.record)
        with pytest.raises(Unavailable):
            await work.ensure_consumer("default", "normal")
