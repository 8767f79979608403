"""Scenarios 26 and 41: a run that fails for good leaves one dead letter, whoever crashes, and can be run again from it."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tenure import (
    App,
    Call,
    Client,
    Context,
    DeadLetter,
    Fail,
    KeyIsLive,
    Retry,
    Run,
    RunFailed,
)
from tenure.core import commands as c
from tenure.core.dead import letter_of
from tenure.core.sessions import Session
from tests.conftest import Workers
from tests.poison import BOOM, Poison, fails_for_good, held
from tests.proxy import Proxy
from tests.support import wait_until

WRONG = Raw(b'{"number":"x"}')


async def depth(client: Client) -> int:
    answer = await client.stores.conn.api(f"STREAM.INFO.{client.stores.names.work_stream}", {})
    assert isinstance(answer, dict)
    return int(answer["state"]["messages"])


# -- it is kept ------------------------------------------------------------------------------------------------------


async def test_scenario_26_what_used_up_its_attempts_is_in_the_dead_letters(
    app: App, client: Client, workers: Workers
) -> None:
    """hindsight#2786, flydocs.

    Three attempts fail: whoever is told so finds the letter at once, with everything that was known.
    """
    poison = Poison(app, queue="q", priority="high")
    async with workers.run(app):
        run = await client.submit(poison.actor.call("text"), key="a.b")
        with pytest.raises(RunFailed):
            await run.result(5)
        letters = await client.dead.list()
        assert [letter.run_id for letter in letters] == [run.run_id]
        (letter,) = letters
        assert (letter.key, letter.generation, letter.actor) == ("a.b", 1, "poison")
        assert (letter.queue, letter.priority, letter.attempts, letter.failures) == ("q", "high", 3, 3)
        assert (letter.failure.type, letter.failure.message) == ("ValueError", "attempt 3 of generation 1")
        assert "raise ValueError" in letter.failure.traceback
        assert bytes(letter.task.args) == b'{"text":"text"}'
        assert letter.task.policy.max_attempts == 3
        assert letter.queued_at <= letter.died_at <= client.now()
        assert not (await held(client, "a.b")).outbox
        assert await client.dead.get(run.run_id) == await client.dead.get("a.b") == letter


@pytest.mark.parametrize("ends", ["succeeds", "is retried", "is cancelled", "is superseded"])
async def test_what_did_not_fail_for_good_leaves_no_letter(
    app: App, client: Client, workers: Workers, ends: str
) -> None:
    started = asyncio.Event()

    @app.actor(retry=Retry(max_attempts=2, initial=0.01))
    async def work(ctx: Context) -> None:
        started.set()
        if ends == "is retried" and ctx.attempt == 1:
            raise ValueError
        if ends in {"is cancelled", "is superseded"} and ctx.generation == 1:
            await ctx.stopping.wait()
            raise Fail

    async with workers.run(app) as running:
        run = await client.submit(work.call(), key="k")
        await started.wait()
        if ends == "is cancelled":
            await run.cancel()
        elif ends == "is superseded":
            run = await client.replace(work.call(), key="k")
        await run.wait(5)
        await wait_until(lambda: not len(running.worker.table), description="nothing is in hand")
        assert await client.dead.list() == []


async def test_scenario_26_a_holder_that_is_lost_with_the_last_attempt_is_in_the_dead_letters(
    app: App, client: Client, workers: Workers
) -> None:
    """Its session is closed as lost; the takeover has no budget; no body runs any more."""
    poison = Poison(app, retry=None)
    stores = client.stores
    gone = Session(id=stores.clock.new_id(), kind="worker", host="h", pid=1, ttl=1.0, started_at=client.now())
    revision = await stores.sessions.create(gone, stores.runs.patience())
    await stores.sessions.write(replace(gone, closed="expired"), revision)
    run = await client.submit(poison.actor.call(), key="k")
    await stores.runs.commit("k", c.Claim(session=gone.id, run_id=run.run_id, next_run_id=""))
    async with workers.run(app):
        with pytest.raises(RunFailed):
            await run.result(10)
        letter = await client.dead.get("k")
        assert letter is not None
        assert (letter.failure.type, letter.attempts, letter.failures) == ("WorkerLost", 1, 1)
    assert poison.bodies == 0


async def test_scenario_41_poison_tasks_leave_nothing_in_the_work_stream(
    app: App, client: Client, workers: Workers
) -> None:
    """nats-server#5564. They fail, exhaust their attempts and cannot decode their arguments: depth returns to 0."""
    poison = Poison(app)

    @app.actor(retry=None)
    async def strict(number: int) -> None: ...

    broken: Call[Any] = dataclasses.replace(strict.call(1), task=replace(strict.call(1).task, args=WRONG))
    async with workers.run(app):
        runs: list[Run[Any]] = [await client.submit(poison.actor.call(), key=f"k{n}") for n in range(5)]
        runs += [await client.submit(broken, key=f"w{n}") for n in range(5)]
        for run in runs:
            with pytest.raises(RunFailed):
                await run.result(10)

        async def empty() -> bool:
            return await depth(client) == 0

        await wait_until(empty, description="the work stream is empty")
        assert sorted(letter.run_id for letter in await client.dead.list()) == sorted(run.run_id for run in runs)


async def test_scenario_26_a_letter_is_stored_by_whoever_finds_that_it_is_owed(
    app: App, client: Client, workers: Workers
) -> None:
    """The worker was cut down between the outcome and the letter; a fresh worker gets the message again."""
    dead = await fails_for_good(client, app)
    assert await client.dead.list() == []
    async with workers.run(app):
        found = await wait_until(lambda: client.dead.get("k"), description="the letter is there")
        assert (found.run_id, found.failure) == (dead.run_id, BOOM)

        async def cleared() -> bool:
            return not (await held(client, "k")).outbox

        await wait_until(cleared, description="and no longer owed")


async def test_a_letter_stored_again_is_no_second_copy_nor_comes_it_back(app: App, client: Client) -> None:
    """A process froze between its look and its write, and wakes up after the letter was stored, and then removed."""
    stores = client.stores
    dead = await fails_for_good(client, app)
    stale = await stores.runs.read("k")
    await stores.complete(stale, stores.runs.patience())
    letter = await client.dead.get("k")
    assert letter is not None
    await stores.dead.keep(letter, stores.runs.patience())
    assert len(await client.dead.list()) == 1
    assert await client.dead.purge("k") == 1
    await stores.dead.keep(letter, stores.runs.patience())
    await stores.complete(stale, stores.runs.patience())
    assert await client.dead.list() == []
    await stores.conn.api(f"STREAM.PURGE.{app.names.dead_stream}", {})  # an hour later its marker is gone
    await stores.complete(stale, stores.runs.patience())
    assert await client.dead.list() == []
    assert await client.dead.purge(dead.run_id) == 0


async def test_a_key_that_owes_its_letter_is_not_purged_nor_is_the_letter_before_it_is_paid(
    app: App, client: Client
) -> None:
    await fails_for_good(client, app)
    with pytest.raises(KeyIsLive, match="owes"):
        await client.purge("k")
    await client.stores.complete(await client.stores.runs.read("k"), client.stores.runs.patience())
    assert await client.purge("k")
    assert len(await client.dead.list()) == 1, "the letter outlives its key"


async def test_a_letter_that_is_still_owed_is_purged_for_good(app: App, client: Client) -> None:
    """Stored, and the process died before it cleared the debt: else whoever finds that would store it again one day."""
    dead = await fails_for_good(client, app)
    await client.stores.dead.keep(letter_of(dead.outbox[0]), client.stores.runs.patience())
    assert await client.dead.purge("k") == 1
    assert (await held(client, "k")).outbox == ()
    assert await client.dead.list() == []


async def test_a_letter_whose_answer_is_lost_is_stored_once(
    app: App, client: Client, behind: Workers, proxy: Proxy
) -> None:
    poison = Poison(app, retry=None)
    async with behind.run(app):
        lost = proxy.lose_answer(lambda p: p.subject.startswith(app.names.dead_prefix))
        run = await client.submit(poison.actor.call(), key="k")
        with pytest.raises(RunFailed):
            await run.result(5)
        assert len(lost.hits) == 1
        assert len(await client.dead.list()) == 1


async def test_a_dead_stream_that_is_gone_costs_no_slot(app: App, client: Client, workers: Workers) -> None:
    """Somebody deleted it. The outcome stands, the worker works on, the letter goes on being owed until it is back."""
    poison = Poison(app, retry=None)

    @app.actor
    async def fine() -> str:
        return "fine"

    async with workers.run(app, concurrency=1) as running:
        await client.stores.conn.api(f"STREAM.DELETE.{app.names.dead_stream}", {})
        run = await client.submit(poison.actor.call(), key="k")
        assert (await run.wait(5)).phase == "failed"
        await wait_until(lambda: not len(running.worker.table), description="its slot is free")
        assert await (await client.submit(fine.call())).result(5) == "fine"
        assert (await held(client, "k")).outbox
        async with app.connect(workers.url):  # makes what is missing, as every start does
            pass
        await wait_until(lambda: client.dead.get("k"), description="the redelivered message pays the debt")


async def refuse(client: Client, most: int) -> None:
    """The dead stream takes no message of more bytes; -1: every one."""
    call = client.stores.conn.api
    info = await call(f"STREAM.INFO.{client.stores.names.dead_stream}", {})
    assert isinstance(info, dict)
    changed = await call(f"STREAM.UPDATE.{client.stores.names.dead_stream}", info["config"] | {"max_msg_size": most})
    assert isinstance(changed, dict), changed


async def test_runs_that_owe_a_letter_keep_no_others_from_their_slots(
    app: App, client: Client, workers: Workers
) -> None:
    """Twenty of them, two slots, no supervisor. Their messages come again, ever later, until the letters are taken."""
    poison = Poison(app, retry=None)

    @app.actor
    async def fine() -> str:
        return "fine"

    async with workers.run(app, concurrency=2) as running:
        await refuse(client, 8)
        owing = [await client.submit(poison.actor.call(), key=f"k{number}") for number in range(20)]
        for run in owing:
            assert (await run.wait(20)).phase == "failed"
        for _ in range(50):
            assert await (await client.submit(fine.call())).result(2) == "fine"
        assert running.worker._remnants is not None
        assert not running.worker._remnants._unheard, "none of them is taken for one whose fate is unknown"
        await refuse(client, -1)

        async def taken() -> bool:
            return len(await client.dead.list(limit=100)) == len(owing)

        await wait_until(taken, description="every letter is taken at last", timeout=20.0)


# -- looking ---------------------------------------------------------------------------------------------------------


async def test_letters_are_listed_by_actor_queue_and_key_the_oldest_first(
    app: App, client: Client, workers: Workers
) -> None:
    Poison(app, retry=None, queue="q")

    @app.actor(retry=None)
    async def other() -> None:
        raise Fail

    async with workers.run(app):
        for key, call in (
            ("a", app.actors["poison"].call()),
            ("b", other.call()),
            ("a b.*", app.actors["poison"].call()),
        ):
            await (await client.submit(call, key=key)).wait(5)
        await (await client.submit(other.call(), key="b")).wait(5)

    def keys(letters: list[DeadLetter]) -> list[tuple[str, int]]:
        return [(letter.key, letter.generation) for letter in letters]

    assert keys(await client.dead.list()) == [("a", 1), ("b", 1), ("a b.*", 1), ("b", 2)]
    assert keys(await client.dead.list(limit=2)) == [("a", 1), ("b", 1)]
    assert keys(await client.dead.list(actor="other")) == [("b", 1), ("b", 2)]
    assert keys(await client.dead.list(queue="q")) == [("a", 1), ("a b.*", 1)]
    assert keys(await client.dead.list(key="a b.*")) == [("a b.*", 1)]
    assert keys(await client.dead.list(key="nobody")) == []
    newest = await client.dead.get("b")
    assert newest is not None
    assert newest.generation == 2
    assert await client.dead.get("nobody") is None
    assert await client.dead.replay("nobody") is None
    assert await client.dead.purge("b") == 2
    assert keys(await client.dead.list()) == [("a", 1), ("a b.*", 1)]
