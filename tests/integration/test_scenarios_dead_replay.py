"""Dead letters are run again: however often and by whomever one is replayed, one run comes of it."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import (
    App,
    Client,
    KeyIsLive,
    OutcomeUnknown,
    Unavailable,
)
from tenure.core.aftermath import derived_id
from tenure.core.records import encode
from tests.conftest import Supervisors, Workers
from tests.deposed import Deposed
from tests.poison import Poison, fails_for_good, held
from tests.proxy import Proxy, record
from tests.support import wait_until


async def test_a_replay_runs_the_same_task_as_a_new_generation_and_the_letter_goes(
    app: App, client: Client, workers: Workers
) -> None:
    poison = Poison(app)
    async with workers.run(app):
        dead = await client.submit(poison.actor.call("text"), key="k")
        await dead.wait(5)
        poison.fails = False
        run = await client.dead.replay("k")
        assert run is not None
        assert (run.key, run.generation, run.run_id) == ("k", 2, derived_id(dead.run_id, "replay"))
        assert await run.result(5) == "text"
        assert await client.dead.list() == []
        assert await client.dead.replay("k") is None
        assert await client.dead.replay(dead.run_id) is None
    assert poison.bodies == 4
    after = await held(client, "k")
    assert (after.seen, after.outbox) == ((), ()), "nothing is left to forget"


async def test_a_run_that_dies_again_tells_the_earlier_failures_too(app: App, client: Client, workers: Workers) -> None:
    poison = Poison(app, retry=None)
    async with workers.run(app):
        first = await client.submit(poison.actor.call(), key="k")
        await first.wait(5)
        runs = [first.run_id]
        for _ in range(2):
            run = await client.dead.replay("k")
            assert run is not None
            await run.wait(5)
            runs.append(run.run_id)
        (letter,) = await client.dead.list()
    assert [death.run_id for death in letter.history] == runs[:2]
    assert [death.failure.message for death in letter.history] == [f"attempt 1 of generation {n}" for n in (1, 2)]
    assert (letter.run_id, letter.failure.message) == (runs[2], "attempt 1 of generation 3")


async def test_a_replay_that_comes_after_another_and_its_run_starts_nothing(
    app: App, client: Client, workers: Workers, proxy: Proxy
) -> None:
    """One client is held just before its write; another replays the letter, the run ends, and the key moves on twice."""
    poison = Poison(app, retry=None)
    async with workers.run(app):
        dead = await client.submit(poison.actor.call("again"), key="k")
        await dead.wait(5)
        poison.fails = False
        app.config = replace(app.config, request_timeout_seconds=10.0, ack_wait_seconds=30.0)  # it waits for the answer
        async with app.connect(proxy.url) as late:
            write = proxy.hold(record(app, "k", "waiting"))
            replaying = asyncio.create_task(late.dead.replay("k"))
            await wait_until(lambda: write.hits, description="the late replay is about to be written")
            first = await client.dead.replay("k")
            assert first is not None
            assert await first.result(5) == "again"
            for _ in range(2):
                await (await client.submit(poison.actor.call("newer"), key="k")).result(5)
            await proxy.release(write)
            run = await replaying
        assert run is not None
        assert (run.accepted, run.run_id) == (False, first.run_id)
        status = await client.status("k")
        assert status is not None
        assert (status.generation, status.phase) == (4, "succeeded")


@pytest.mark.parametrize("meanwhile", ["nothing", "it has ended", "the key has moved on"])
async def test_a_replay_cut_down_before_it_removed_the_letter_starts_one_run(
    app: App, client: Client, workers: Workers, proxy: Proxy, meanwhile: str
) -> None:
    """Submit, crash, replay by a fresh client: at once, after the run has ended, after two newer generations."""
    poison = Poison(app, retry=None)
    async with workers.run(app, concurrency=1):
        dead = await client.submit(poison.actor.call("again"), key="k")
        await dead.wait(5)
        poison.fails = False
        letter = await client.dead.get("k")
        assert letter is not None

        app.config = replace(app.config, request_timeout_seconds=0.2, patience_seconds=0.5)
        async with app.connect(proxy.url) as cut_down:
            lost = proxy.lose(lambda p: p.subject.startswith(app.names.dead_prefix), times=50)
            with pytest.raises(OutcomeUnknown):
                await cut_down.dead.replay("k")
            lost.clear()
        if meanwhile != "nothing":
            assert await client.run("k").result(5) == "again"
        if meanwhile == "the key has moved on":
            for _ in range(2):
                await (await client.submit(poison.actor.call("newer"), key="k")).result(5)
        async with app.connect(workers.url) as fresh:
            assert len(await fresh.dead.list()) == 1
            run = await fresh.dead.replay(letter)
            assert run is not None
            assert run.run_id == derived_id(dead.run_id, "replay")
            assert await fresh.dead.list() == []
            assert await client.run("k").result(5)
            assert not (await held(fresh, "k")).seen
    assert poison.bodies == 1 + 1 + 2 * (meanwhile == "the key has moved on")


@pytest.mark.parametrize("lasts", [False, True])
async def test_a_replay_that_does_not_find_its_letter_again_removes_none(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch, *, lasts: bool
) -> None:
    """A leader that was deposed before the letter was stored says that it was replayed: nothing would run, and the letter be gone."""
    poison = Poison(app, retry=None)
    app.config = replace(app.config, patience_seconds=1.0)
    async with workers.run(app), app.connect(workers.url) as far:
        dead = await far.submit(poison.actor.call("again"), key="k", delay=0.5)
        deposed, names = Deposed(far.stores.conn, monkeypatch), app.names
        letter = {"seq": 1, "next_by_subj": names.dead("poison", "k", dead.run_id)}
        await deposed.sees(f"STREAM.MSG.GET.{names.dead_stream}", letter)
        await dead.wait(5)
        poison.fails = False
        deposed.left = 10_000 if lasts else 1
        run = await far.dead.replay("k")
        assert run is not None
        assert deposed.left < 10_000
        if not lasts:
            assert await run.result(5) == "again"
        assert (run.accepted, len(await client.dead.list())) == ((False, 1) if lasts else (True, 0))


async def test_two_replays_at_once_start_one_run(app: App, client: Client, workers: Workers) -> None:
    await fails_for_good(client, app)
    await client.stores.complete(await client.stores.runs.read("k"), client.stores.runs.patience())
    async with app.connect(workers.url) as other:
        results = await asyncio.gather(*(one.dead.replay("k") for one in (client, other) * 4), return_exceptions=True)
    runs = {run.run_id for run in results if run is not None and not isinstance(run, BaseException)}
    assert len(runs) == 1
    assert not [result for result in results if isinstance(result, BaseException)]
    assert (await held(client, "k")).generation == 2
    assert await client.dead.list() == []


async def test_a_live_key_is_not_replayed_and_keeps_its_letter(app: App, client: Client) -> None:
    poison = Poison(app, retry=None)
    await fails_for_good(client, app)
    newer = await client.submit(poison.actor.call(), key="k", delay=60)
    with pytest.raises(KeyIsLive) as caught:
        await client.dead.replay("k")
    assert (caught.value.key, caught.value.run_id) == ("k", newer.run_id)
    assert len(await client.dead.list()) == 1
    await newer.cancel()
    run = await client.dead.replay("k")
    assert run is not None
    assert run.generation == 3


async def test_a_key_that_is_gone_is_replayed_as_a_new_life(app: App, client: Client, workers: Workers) -> None:
    poison = Poison(app, retry=None)
    await fails_for_good(client, app)
    await client.stores.complete(await client.stores.runs.read("k"), client.stores.runs.patience())
    await client.purge("k")
    poison.fails = False
    async with workers.run(app):
        run = await client.dead.replay("k")
        assert run is not None
        assert run.generation == 1
        await run.result(5)


async def test_arguments_in_a_blob_are_replayed(app: App, client: Client, workers: Workers) -> None:
    poison = Poison(app, retry=None)
    big = "x" * (app.config.inline_limit_bytes + 1)
    async with workers.run(app):
        run = await client.submit(poison.actor.call(big), key="k")
        await run.wait(5)
        letter = await client.dead.get("k")
        assert letter is not None
        assert letter.task.blob is not None
        poison.fails = False
        again = await client.dead.replay("k")
        assert again is not None
        assert await again.result(5) == big


async def test_a_replay_that_may_be_stored_can_be_repeated(app: App, client: Client, proxy: Proxy) -> None:
    """Its answer and those of its repeats are lost: OutcomeUnknown, and the same again finds that run."""
    dead = await fails_for_good(client, app)
    await client.stores.complete(await client.stores.runs.read("k"), client.stores.runs.patience())
    app.config = replace(app.config, request_timeout_seconds=0.2, patience_seconds=0.5)
    async with app.connect(proxy.url) as far:
        lost = proxy.lose_answer(record(app, "k", "waiting"), times=50)
        with pytest.raises(OutcomeUnknown):
            await far.dead.replay("k")
        lost.clear()
    run = await client.dead.replay("k")
    assert run is not None
    assert run.run_id == derived_id(dead.run_id, "replay")
    assert (await held(client, "k")).generation == 2
    assert encode(await held(client, "k"))
    assert await client.dead.list() == []


async def test_a_replay_cut_down_before_it_removed_the_letter_is_finished_by_a_supervisor(
    app: App, client: Client, workers: Workers, supervisors: Supervisors, proxy: Proxy
) -> None:
    """Nobody repeats it. The run has ended and the key has moved on when a supervisor comes: no second run is possible."""
    poison = Poison(app, retry=None)
    await fails_for_good(client, app)
    poison.fails = False
    await client.stores.complete(await client.stores.runs.read("k"), client.stores.runs.patience())
    letter = await client.dead.get("k")
    assert letter is not None
    app.config = replace(app.config, request_timeout_seconds=0.2, patience_seconds=0.5, sweep_seconds=0.5)
    async with app.connect(proxy.url) as cut_down:
        lost = proxy.lose(lambda p: p.subject.startswith(app.names.dead_prefix), times=50)
        with pytest.raises(OutcomeUnknown):
            await cut_down.dead.replay("k")
        lost.clear()
    async with workers.run(app):
        await client.run("k").result(5)
        for _ in range(2):
            await (await client.submit(poison.actor.call(), key="k")).result(5)
        async with supervisors.run(app) as supervisor:

            async def finished() -> bool:
                return not (await held(client, "k")).seen

            await wait_until(finished, description="nothing is left to forget")
            assert supervisor.metrics.repairs["seen"] == 1
        assert await client.dead.list() == []
        assert await client.dead.replay(letter) is None
    assert poison.bodies == 3


# -- an error never says "nothing happened" when something has ----------------------------------------------------------


async def letters_of(client: Client, app: App, workers: Workers, number: int) -> None:
    """Letters of key ``k``, and nobody at work any more."""
    poison = Poison(app, retry=None)
    async with workers.run(app):
        for _ in range(number):
            await (await client.submit(poison.actor.call(), key="k")).wait(5)
    assert len(await client.dead.list()) == number


def fail_from(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, first: int) -> None:
    """From its ``first`` call on, the server refuses what this method asks for."""
    calls = itertools.count(1)
    real = getattr(owner, name)

    async def refused(*args: Any, **options: Any) -> Any:
        if next(calls) >= first:
            raise Unavailable("refused for now")
        return await real(*args, **options)

    monkeypatch.setattr(owner, name, refused)


async def test_a_replay_whose_letter_cannot_be_removed_has_started_a_run_and_says_so(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await letters_of(client, app, workers, 1)
    fail_from(monkeypatch, client.stores.dead, "remove", 1)
    with pytest.raises(OutcomeUnknown, match="'k' runs again, but its dead letter may still be there") as raised:
        await client.dead.replay("k")
    assert raised.value.run_id == (await held(client, "k")).run_id
    assert (await held(client, "k")).generation == 2


@pytest.mark.parametrize(
    ("what", "first", "words"),
    [("remove", 2, "1 dead letters of 'k' are removed, not all"), ("commit", 1, "is removed, but")],
    ids=["the second of two letters", "the record's memory of the letter"],
)
async def test_a_purge_that_has_removed_a_letter_says_so(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch, what: str, first: int, words: str
) -> None:
    await letters_of(client, app, workers, 2)
    fail_from(monkeypatch, client.stores.dead if what == "remove" else client.stores.runs, what, first)
    with pytest.raises(OutcomeUnknown, match=words):
        await client.dead.purge("k")
    assert len(await client.dead.list()) == 1


async def test_a_purge_that_could_do_nothing_is_unavailable(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await letters_of(client, app, workers, 1)
    fail_from(monkeypatch, client.stores.dead, "remove", 1)
    with pytest.raises(Unavailable):
        await client.dead.purge("k")
    assert len(await client.dead.list()) == 1


async def test_a_purge_of_which_no_answer_came_may_have_happened(
    app: App, client: Client, workers: Workers, proxy: Proxy
) -> None:
    """The server removes the letter; then it is gone, and the client never hears."""
    await letters_of(client, app, workers, 1)
    app.config = replace(app.config, request_timeout_seconds=0.2, patience_seconds=0.5)
    async with app.connect(proxy.url) as cut_down:
        proxy.lose_answer(lambda p: p.subject.startswith(app.names.dead_prefix), times=50)
        with pytest.raises(OutcomeUnknown, match="removal of the dead letter"):
            await cut_down.dead.purge("k")
    assert await client.dead.list() == []
