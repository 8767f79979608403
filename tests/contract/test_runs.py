"""What the bucket of records promises."""

from __future__ import annotations

import asyncio
from base64 import b64decode

import pytest

from tenure.clock import SYSTEM, AlignedClock
from tenure.core.commands import Cancel, Claim, Confirm, HandBack, Purge, Replace, Succeed
from tenure.core.outcomes import Did, Why
from tenure.core.records import Holder, Phase, Task
from tenure.nats import changes as changes_module
from tenure.nats.connection import Answer
from tenure.nats.patience import Patience
from tenure.nats.runs import NOTHING, Committed, Declined, Found
from tenure.stores import Stores
from tests.contract.conftest import submit
from tests.deposed import Deposed
from tests.support import wait_until

HOUR = 3_600.0


class At(AlignedClock):
    """The machine's clocks, at another time of day."""

    def __init__(self, now: float) -> None:
        super().__init__(SYSTEM)
        self.align(now, self.steady())


def claim(session: str, run_id: str) -> Claim:
    return Claim(session=session, run_id=run_id, next_run_id="next")


async def committed(result: Committed | Declined) -> Committed:
    assert isinstance(result, Committed), result
    return result


async def test_a_key_that_never_was_is_nothing(stores: Stores) -> None:
    assert await stores.runs.read("never") == NOTHING


async def test_what_is_committed_is_read_back_at_its_revision(stores: Stores) -> None:
    done = await committed(await stores.runs.commit("k", submit("k", "r1"), at=NOTHING))
    assert await stores.runs.read("k") == Found(done.record, done.revision)
    assert done.record.phase is Phase.WAITING


async def test_of_many_creates_one_wins_and_the_others_are_declined_on_what_it_stored(stores: Stores) -> None:
    results = await asyncio.gather(*(stores.runs.commit("k", submit("k", f"r{i}"), at=NOTHING) for i in range(50)))
    won = [result for result in results if isinstance(result, Committed)]
    assert len(won) == 1
    for result in results:
        if isinstance(result, Declined):
            assert result.refused.why is Why.LIVE
            assert result.found.record == won[0].record


async def test_an_outcome_that_another_bodys_confirm_came_before_is_stored_on_the_second_look(stores: Stores) -> None:
    """Refused is not lost: whoever still holds the run decides again on what is there [21]."""
    await committed(await stores.runs.commit("k", submit("k", "r1", overlap="parallel"), at=NOTHING))
    first = await committed(await stores.runs.commit("k", claim("a", "r1")))
    await committed(await stores.runs.commit("k", Replace(key="k", run_id="r2", task=first.record.task)))
    second = await committed(await stores.runs.commit("k", claim("b", "r2")))
    assert second.record.holder is not None
    assert first.record.holder is not None
    confirmed = await committed(await stores.runs.commit("k", Confirm(holder=first.record.holder)))
    outcome = Succeed(holder=second.record.holder, next_run_id="r3")
    stored = await committed(await stores.runs.commit("k", outcome, at=Found(second.record, second.revision)))
    assert (stored.decision.did, stored.record.previous) == (Did.SUCCEEDED, ())
    assert stored.revision > confirmed.revision


async def test_of_many_claims_one_wins(stores: Stores) -> None:
    done = await committed(await stores.runs.commit("k", submit("k", "r1"), at=NOTHING))
    at = Found(done.record, done.revision)
    results = await asyncio.gather(*(stores.runs.commit("k", claim(f"s{i}", "r1"), at=at) for i in range(50)))
    assert sum(isinstance(result, Committed) for result in results) == 1
    assert {result.refused.why for result in results if isinstance(result, Declined)} == {Why.BUSY}


async def test_a_stale_belief_costs_a_read_and_decides_nothing(stores: Stores) -> None:
    """The record moved on between the belief and the write.

    The store refuses, the command is decided on what is there.
    """
    first = await committed(await stores.runs.commit("k", submit("k", "r1"), at=NOTHING))
    await committed(await stores.runs.commit("k", Replace(key="k", run_id="r2", task=first.record.task)))
    late = await stores.runs.commit("k", claim("s", "r1"), at=Found(first.record, first.revision))
    assert isinstance(late, Declined)
    assert late.refused.why is Why.SUPERSEDED


async def test_an_outcome_needs_its_holder_whatever_revision_it_believes_in(stores: Stores) -> None:
    await committed(await stores.runs.commit("k", submit("k", "r1"), at=NOTHING))
    await committed(await stores.runs.commit("k", claim("s", "r1")))
    stranger = Holder(session="other", run_id="r1", attempt=1)
    refused = await stores.runs.commit("k", Succeed(holder=stranger, next_run_id=""))
    assert isinstance(refused, Declined)
    assert refused.refused.why is Why.FENCED


async def test_a_finished_record_expires_and_refuses_a_late_create_for_an_hour(stores: Stores) -> None:
    """A create (expects nothing) that was under way while the key ran.

    Ended and expired must not start a second run [8].
    """
    await committed(await stores.runs.commit("k", submit("k", "r1", result_ttl=1.0), at=NOTHING))
    await committed(await stores.runs.commit("k", claim("s", "r1")))
    holder = Holder(session="s", run_id="r1", attempt=1)
    await committed(await stores.runs.commit("k", Succeed(holder=holder, next_run_id="")))

    async def gone() -> bool:
        return (await stores.runs.read("k")).record is None

    await wait_until(gone, description="the record has expired")
    subject = stores.names.record("k")
    stored = await stores.conn.api(f"STREAM.MSG.GET.{stores.names.runs_stream}", {"last_by_subj": subject})
    assert isinstance(stored, dict)
    assert "Nats-TTL: 3601s" in b64decode(stored["message"]["hdrs"]).decode()
    late = await stores.conn.put(subject, b"{}", {"Nats-Expected-Last-Subject-Sequence": "0"})
    assert late.error is not None
    again = await committed(await stores.runs.commit("k", submit("k", "r2"), at=NOTHING))
    assert (again.record.generation, again.record.run_id) == (1, "r2")


async def test_an_answer_is_judged_by_when_it_was_asked_for(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader stood still until the record's time was over: by then another life may have begun, and it would say "nothing"."""
    await committed(await stores.runs.commit("k", submit("k", "r1", result_ttl=HOUR), at=NOTHING))
    await committed(await stores.runs.commit("k", claim("s", "r1")))
    holder = Holder(session="s", run_id="r1", attempt=1)
    ended = await committed(await stores.runs.commit("k", Succeed(holder=holder, next_run_id="")))
    async with stores.runs.follow("k") as changes:
        await changes.next()
        asked, late = stores.conn.request, stores.clock.now() + 2 * HOUR

        async def unread_for_hours(subject: str, body: bytes) -> Answer:
            answer = await asked(subject, body)
            monkeypatch.setattr(stores.runs, "clock", At(late))
            return answer

        monkeypatch.setattr(stores.conn, "request", unread_for_hours)
        assert await stores.runs.read("k") == Found(ended.record, ended.revision)
        assert await stores.runs.read("k") == Found(None, ended.revision), "asked for after its time"


async def test_an_event_tells_what_was_in_force_however_late_it_is_heard(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await committed(await stores.runs.commit("k", submit("k", "r1", result_ttl=HOUR), at=NOTHING))
    await committed(await stores.runs.commit("k", claim("s", "r1")))
    holder = Holder(session="s", run_id="r1", attempt=1)
    async with stores.runs.follow("k") as changes:
        await changes.next()
        ended = await committed(await stores.runs.commit("k", Succeed(holder=holder, next_run_id="")))
        monkeypatch.setattr(stores.runs, "clock", At(stores.clock.now() + 2 * HOUR))
        assert await changes.next() == Found(ended.record, ended.revision)


async def test_a_live_record_does_not_expire_with_or_without_an_outcome_in_it(stores: Stores) -> None:
    """The server is told nothing of a time, which would take the run that waits along."""

    async def headers(done: Committed) -> str:
        found = await stores.conn.api(
            f"STREAM.MSG.GET.{stores.names.runs_stream}", {"last_by_subj": stores.names.record("k")}
        )
        assert isinstance(found, dict)
        assert found["message"]["seq"] == done.revision
        return b64decode(found["message"]["hdrs"]).decode()

    waiting = await committed(await stores.runs.commit("k", submit("k", "r1", result_ttl=1.0), at=NOTHING))
    assert "Nats-TTL" not in await headers(waiting)
    assert "Nats-TTL" not in await headers(await committed(await stores.runs.commit("k", claim("s", "r1"))))
    holder = Holder(session="s", run_id="r1", attempt=1)
    ended = await committed(await stores.runs.commit("k", Succeed(holder=holder, next_run_id="")))
    assert "Nats-TTL" in await headers(ended)
    again = await committed(await stores.runs.commit("k", submit("k", "r2", result_ttl=1.0)))
    assert again.record.last is not None
    assert "Nats-TTL" not in await headers(again)


async def test_a_purge_is_a_cas_and_leaves_a_marker(stores: Stores) -> None:
    done = await committed(await stores.runs.commit("k", submit("k", "r1"), at=NOTHING))
    await committed(await stores.runs.commit("k", Replace(key="k", run_id="r2", task=done.record.task)))
    purged = await committed(await stores.runs.commit("k", Purge(), at=Found(done.record, done.revision)))
    assert purged.decision.did is Did.PURGED
    found = await stores.runs.read("k")
    assert found.record is None
    assert found.revision == purged.revision
    running = await committed(await stores.runs.commit("k", submit("k", "r3"), at=NOTHING))
    await committed(await stores.runs.commit("k", claim("s", "r3"), at=Found(running.record, running.revision)))
    refused = await stores.runs.commit("k", Purge())
    assert isinstance(refused, Declined)


async def test_scan_shows_every_record_once_by_its_header(stores: Stores) -> None:
    keys = [f"key {i}.*>" for i in range(120)]
    await asyncio.gather(*(stores.runs.commit(key, submit(key, "r"), at=NOTHING) for key in keys))
    await committed(await stores.runs.commit(keys[0], Cancel(run_id="r")))
    await committed(await stores.runs.commit(keys[1], Purge()))
    seen: dict[str, str] = {}
    await stores.runs.scan(lambda header: seen.__setitem__(header.key, header.state), batch=50)
    assert set(seen) == set(keys) - {keys[1]}
    assert seen[keys[0]].startswith("cancelled ")
    assert seen[keys[2]].startswith("waiting ")


async def test_scan_of_an_empty_bucket_ends(stores: Stores) -> None:
    await stores.runs.scan(lambda *_: None)


async def test_follow_starts_with_what_is_and_goes_on_with_what_comes(stores: Stores) -> None:
    await stores.runs.commit("k", submit("k", "r1"), at=NOTHING)
    async with stores.runs.follow("k") as changes:
        first = await changes.next()
        assert first.record is not None
        assert first.record.phase is Phase.WAITING
        await stores.runs.commit("k", claim("s", "r1"))
        await stores.runs.commit("k", HandBack(holder=Holder(session="s", run_id="r1", attempt=1)))
        phases: list[Phase | None] = []
        revision = first.revision
        while len(phases) < 2:
            found = await changes.next()
            assert found.revision > revision
            revision = found.revision
            phases.append(found.record.phase if found.record else None)
        assert phases == [Phase.RUNNING, Phase.WAITING]


@pytest.mark.parametrize("shown", ["nothing", "an older run"])
async def test_nothing_older_is_read_than_what_the_key_is_known_to_have_had_until_it_stays_so(
    stores: Stores, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was deposed shows it for a while; but a bucket that was made anew begins at 1 for ever."""
    if shown == "an older run":
        await committed(await stores.runs.commit("k", submit("k", "r0"), at=NOTHING))
    deposed = Deposed(stores.conn, monkeypatch)
    await deposed.sees(f"STREAM.MSG.GET.{stores.names.runs_stream}", {"last_by_subj": stores.names.record("k")})
    replacement = Replace(key="k", run_id="r1", task=Task(actor="nobody"))
    newer = await committed(await stores.runs.commit("k", replacement))
    deposed.left = 3
    assert await stores.runs.read("k", since=newer.revision) == Found(newer.record, newer.revision)
    assert not deposed.left
    deposed.left = 3
    monkeypatch.setattr(changes_module, "_DOUBT_SECONDS", 0.05)
    async with stores.runs.follow("k", since=newer.revision) as changes:
        async with asyncio.timeout(5):
            assert await changes.next() == Found(newer.record, newer.revision)
        assert not deposed.left
    deposed.left = 1_000_000
    assert (await stores.runs.read("k", Patience(stores.clock, 0.3), since=newer.revision)).revision < newer.revision
    monkeypatch.setattr(changes_module, "_SURE_SECONDS", 0.3)
    async with stores.runs.follow("k", since=newer.revision) as changes:
        async with asyncio.timeout(5):
            assert (await changes.next()).revision < newer.revision
        deposed.left = 0
        changes.look()
        assert await changes.next() == Found(newer.record, newer.revision)


async def test_patience_ends_and_says_that_nothing_happened(stores: Stores) -> None:
    patience = Patience(SYSTEM, 0.05)
    tries = 0
    while await patience.pause():
        tries += 1
    assert 1 <= tries < 10
    assert patience.spent
