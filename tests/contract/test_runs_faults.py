"""Contract of the runs bucket under faults.

Late creates, lost answers, reconnects, records that are not ours to touch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.errors import InvalidCall, NewerSchema, OutcomeUnknown, Unavailable
from tenure.core.outcomes import Did, Refused, Why
from tenure.core.records import Phase, Policy
from tenure.nats import changes as changes_module
from tenure.nats.changes import Changes
from tenure.nats.connection import Answer, Connection
from tenure.nats.patience import Patience
from tenure.nats.runs import NOTHING, Committed, Declined, Found
from tenure.stores import Stores
from tests.contract.support import (
    OwnServer,
    claimed,
    connect,
    crash,
    finished,
    proxied,
    say_in_flight,
    submit,
    submitted,
)
from tests.support import FAST, wait_until

VANISHES = Policy(result_ttl=1.0)


async def refused_first(stores: Stores, write: Callable[[], Awaitable[object]]) -> bool:
    """Whether the first compare-and-swap of ``write`` was refused."""
    conflicts: list[str] = []
    stores.runs.conflicts = conflicts.append
    await write()
    stores.runs.conflicts = lambda _operation: None
    return bool(conflicts)


async def gone(stores: Stores, key: str = "k") -> bool:
    return (await stores.runs.read(key)).record is None


@pytest.mark.parametrize("how", ["expired", "purged"])
async def test_a_late_create_is_refused_by_the_marker_and_a_new_life_begins_at_generation_1(how: str, stores: Stores):
    """A create of the old life (expects 0) arrives after its record is gone [8].

    Only who has read the marker may write.
    """
    made = await submitted(stores, policy=VANISHES)
    if how == "expired":
        await finished(stores, made.record)
        await wait_until(lambda: gone(stores), description="the record expires", timeout=4)
    else:
        assert isinstance(await stores.runs.commit("k", c.Purge()), Committed)
    marker = await stores.runs.read("k")
    assert marker.record is None
    assert marker.revision > made.revision  # its own last one, or the purge's
    again: list[Committed | Declined] = []

    async def late_create() -> None:
        again.append(await stores.runs.commit("k", submit(), at=NOTHING))

    assert await refused_first(stores, late_create)
    assert isinstance(again[0], Committed)
    assert again[0].record.generation == 1
    assert again[0].record.run_id != made.record.run_id
    assert again[0].revision > marker.revision


async def test_a_submit_over_a_finished_record_takes_its_ttl_away(stores: Stores):
    """The ttl belongs to the outcome: the new generation is still there when the old one would have vanished."""
    ended = await finished(stores, (await submitted(stores, policy=VANISHES)).record)
    await submitted(stores, policy=VANISHES)
    younger = await finished(stores, (await submitted(stores, "younger", policy=VANISHES)).record)
    assert younger.revision > ended.revision
    await wait_until(lambda: gone(stores, "younger"), description="a younger ttl is over", timeout=4)
    found = await stores.runs.read("k")
    assert found.record is not None
    assert (found.record.generation, found.record.phase) == (2, Phase.WAITING)


async def test_a_purge_decided_on_a_stale_read_purges_nothing(stores: Stores):
    """Decided on "waiting"; meanwhile the run was claimed and its body runs."""
    made = await submitted(stores)
    running = await claimed(stores, made.record)
    result = await stores.runs.commit("k", c.Purge(), at=Found(made.record, made.revision))
    assert isinstance(result, Declined)
    assert result.refused.why is Why.LIVE
    assert await stores.runs.read("k") == Found(running.record, running.revision)


async def test_a_check_that_says_no_writes_nothing(stores: Stores):
    async def no() -> bool:
        return False

    result = await stores.runs.commit("k", submit(), check=no)
    assert isinstance(result, Declined)
    assert result.refused.why is Why.NOTHING
    assert await stores.runs.read("k") == NOTHING


async def test_a_record_over_the_servers_limit_is_refused_and_nothing_is_stored(stores: Stores):
    with pytest.raises(InvalidCall):
        await submitted(stores, args={"text": "x" * stores.conn.max_payload})
    assert await stores.runs.read("k") == NOTHING
    assert stores.conn.raw.stats["reconnects"] == 0


async def test_a_newer_record_is_refused_whole(stores: Stores):
    """Rewriting it would drop fields that a newer process relies on."""
    await stores.conn.put(stores.names.record("k"), b'{"schema": 999, "what": "ever"}')
    with pytest.raises(NewerSchema) as caught:
        await stores.runs.read("k")
    assert caught.value.schema == 999
    with pytest.raises(NewerSchema):
        await stores.runs.commit("k", submit(), at=NOTHING)


# -- follow ----------------------------------------------------------------------------------------------------------


async def next_of(changes: Changes, seconds: float = 3.0) -> Found:
    async with asyncio.timeout(seconds):
        return await changes.next()


async def test_follow_of_a_key_that_is_not_there_waits_for_its_first_record_and_sees_its_purge(stores: Stores):
    async with stores.runs.follow("k") as changes:
        assert await next_of(changes) == NOTHING
        made = await submitted(stores)
        await submitted(stores, "another")
        assert await next_of(changes) == Found(made.record, made.revision)
        purged = await stores.runs.commit("k", c.Purge())
        assert isinstance(purged, Committed)
        assert await next_of(changes) == Found(None, purged.revision)


async def test_follow_misses_nothing_between_subscribe_and_read_and_returns_it_once(stores: Stores):
    """The write falls between the two: it arrives as an event and is in what is read."""
    made = await submitted(stores)
    async with stores.runs.follow("k") as changes:
        running = await claimed(stores, made.record)
        assert await next_of(changes) == Found(running.record, running.revision)
        with pytest.raises(TimeoutError):
            await next_of(changes, 0.2)


async def test_follow_survives_the_crash_of_the_server(own_server: OwnServer, namespace: str):
    """SIGKILL and restart: what is written afterwards arrives within about two seconds."""
    async with connect(own_server.url, namespace) as stores:
        made = await submitted(stores)
        async with stores.runs.follow("k") as changes:
            assert (await next_of(changes)).revision == made.revision
            await crash(own_server, stores)
            running = await claimed(stores, made.record)
            assert await next_of(changes, 2.5) == Found(running.record, running.revision)


async def test_follow_reads_again_after_a_reconnect(stores: Stores, nats_server: str, namespace: str):
    """The event fell into the gap: nobody repeats it, so who follows reads."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as cut_off:
        made = await submitted(stores)
        async with cut_off.runs.follow("k") as changes:
            assert (await next_of(changes)).revision == made.revision
            await proxy.take_down()
            running = await claimed(stores, made.record)
            await proxy.bring_up()
            assert await next_of(changes) == Found(running.record, running.revision)


async def test_follow_of_what_is_fresh_spares_the_read_but_not_for_long(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
):
    """An event comes first, and nothing was read; none comes, for it was told before anybody listened: then it is read."""
    made = await submitted(stores)
    asked, request = [], stores.conn.request

    async def counted(subject: str, *args: Any, **kwargs: Any) -> Answer:
        asked.append(subject)
        return await request(subject, *args, **kwargs)

    monkeypatch.setattr(stores.conn, "request", counted)
    reads = f"$JS.API.STREAM.MSG.GET.{stores.names.runs_stream}"
    async with stores.runs.follow("k", fresh=True) as changes:
        assert (await next_of(changes)).revision == made.revision
        assert asked.count(reads) == 1
    monkeypatch.setattr(changes_module, "_FRESH_SECONDS", 60.0)
    async with stores.runs.follow("k", fresh=True) as changes:
        running = await claimed(stores, made.record)
        before = asked.count(reads)
        assert await next_of(changes) == Found(running.record, running.revision)
        assert asked.count(reads) == before


async def test_follow_believes_that_a_key_is_gone_once_it_stays_so(
    nats_server: str, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    """It ended and expired while nobody was connected. A leader that is none any more may say so too, but not for long."""
    monkeypatch.setattr(changes_module, "_SURE_SECONDS", 0.3)
    async with connect(nats_server, namespace, replace(FAST, reread_seconds=0.1)) as stores:
        made = await submitted(stores)
        async with stores.runs.follow("k") as changes:
            assert (await next_of(changes)).revision == made.revision
            read, answers = stores.runs.read, iter([NOTHING, Found(made.record, made.revision), NOTHING])

            async def astray(*_args: object) -> Found:
                answer = next(answers, None)
                return await read("k") if answer is None else answer

            changes._read = astray
            with pytest.raises(TimeoutError):
                await next_of(changes, 0.6)
            assert next(answers, None) is None
            gone = await stores.conn.api(
                f"STREAM.PURGE.{stores.names.runs_stream}", {"filter": stores.names.record("k")}
            )
            assert isinstance(gone, dict)
            assert await next_of(changes) == NOTHING


# -- writes of unknown fate ------------------------------------------------------------------------------------------


async def test_a_write_that_was_applied_unheard_is_recognised_by_who_wrote_it(nats_server: str, namespace: str):
    """And its effects are those of the record that is stored."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        made = await submitted(stores)
        lost = proxy.lose_answer(lambda p: p.says("Tenure-State: running"))
        claim = c.Claim(session="s", run_id=made.record.run_id, next_run_id="")
        result = await stores.runs.commit(
            "k", claim, mine=lambda record: record.holder is not None and record.holder.session == "s"
        )
        assert len(lost.hits) == 1
        assert isinstance(result, Committed)
        assert result.decision.did is Did.WON
        assert await stores.runs.read("k") == Found(result.record, result.revision)
        assert result.record.attempt == 1


async def test_a_write_that_the_server_did_not_propose_has_not_happened(nats_server: str, namespace: str):
    """10164: another is in flight, and wins. So there is no doubt about this one, and nobody takes the other for it."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace, FAST) as stores:
        made = await submitted(stores)
        claim = c.Claim(session="s", run_id=made.record.run_id, next_run_id="")
        async with connect(nats_server, namespace) as others:
            lost = proxy.lose(lambda p: p.says("Tenure-State: running"))
            result = asyncio.create_task(stores.runs.commit("k", claim, mine=lambda _record: True))
            await lost.done.wait()
            won = await claimed(others, made.record)
            await say_in_flight(proxy, lost, 1)
        assert await result == Declined(Refused(Why.BUSY), Found(won.record, won.revision), unsure=False)


async def test_a_write_that_the_server_says_is_in_flight_may_be_an_earlier_copy_of_it(nats_server: str, namespace: str):
    """The first was proposed and its answer lost, the second met it there (10164), the third is refused: it is recognised."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        made = await submitted(stores)
        proxy.lose_answer(lambda p: p.says("Tenure-State: running"))
        second = proxy.lose(lambda p: p.says("Tenure-State: running"))
        claim = c.Claim(session="s", run_id=made.record.run_id, next_run_id="")
        answers = asyncio.create_task(say_in_flight(proxy, second, 1))
        result = await stores.runs.commit(
            "k", claim, mine=lambda record: record.holder is not None and record.holder.session == "s"
        )
        await answers
        assert isinstance(result, Committed)
        assert result.decision.did is Did.WON
        assert await stores.runs.read("k") == Found(result.record, result.revision)
        assert result.record.attempt == 1


async def test_nobody_else_recognises_it(nats_server: str, namespace: str):
    """A refusal of which every answer was heard is somebody else's write, whatever it looks like."""
    async with connect(nats_server, namespace) as stores:
        made = await submitted(stores)
        await claimed(stores, made.record)
        claim = c.Claim(session="s", run_id=made.record.run_id, next_run_id="")
        result = await stores.runs.commit("k", claim, at=Found(made.record, made.revision), mine=lambda _record: True)
        assert isinstance(result, Declined)
        assert result.refused.why is Why.BUSY
        assert not result.unsure


async def test_a_write_that_may_still_come_is_repeated_unchanged_until_the_revision_moves(
    nats_server: str, namespace: str
):
    """A read that does not show it proves nothing [19]: the same bytes again; the copy that comes later is refused."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        held = proxy.hold(lambda p: p.says("Tenure-State: waiting"), times=2)
        made = await submitted(stores)
        await proxy.release(held)
        assert len({publish.payload for publish in held.hits}) == 1
        assert await stores.runs.read("k") == Found(made.record, made.revision)


async def test_in_a_cluster_an_event_that_nobody_was_told_of_is_found_soon(
    nats_server: str, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    """There a read may overtake the subscription before it: what is written in between is repeated to nobody."""
    monkeypatch.setattr(Connection, "is_clustered", True)
    async with connect(nats_server, namespace, replace(FAST, reread_seconds=60.0)) as stores:
        await submitted(stores, "k")
        async with stores.runs.follow("k") as changes:
            first = await changes.next()
            for subscription in list(stores.conn.raw._subs.values()):
                if subscription.subject == stores.names.event("k"):
                    await subscription.unsubscribe()
            await stores.runs.commit("k", c.Cancel())
            async with asyncio.timeout(10):
                assert (await changes.next()).revision > first.revision


@pytest.mark.parametrize("certain", [True, False])
async def test_giving_up_says_whether_it_may_have_happened(certain: bool, nats_server: str, namespace: str):
    """Not connected: Unavailable, nothing was sent. Sent and never answered: OutcomeUnknown."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        if certain:
            await proxy.take_down()
            await wait_until(lambda: not stores.conn.is_connected, description="noticed")
        else:
            proxy.lose(lambda p: p.says("Tenure-State: waiting"), times=100)
        with pytest.raises(Unavailable if certain else OutcomeUnknown) as caught:
            await stores.runs.commit("k", submit(), at=NOTHING, patience=Patience(stores.clock, 0.3))
        if isinstance(caught.value, OutcomeUnknown):
            assert caught.value.key == "k"


async def test_reading_from_a_bucket_that_is_gone_says_so(stores: Stores):
    await stores.conn.api(f"STREAM.DELETE.{stores.names.runs_stream}", {})
    with pytest.raises(Unavailable, match="tenure setup"):
        await stores.runs.read("k", Patience(stores.clock, 0.1))


async def test_two_namespaces_do_not_see_each_other(stores: Stores, nats_server: str, namespace: str):
    await submitted(stores)
    async with connect(nats_server, namespace + "-b") as other:
        assert await other.runs.read("k") == NOTHING
