"""Blocks on a real server: runs that wait by key or by argument."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, InvalidCall, Limit, RateLimit, Where
from tenure.testing import memory
from tests.conftest import Supervisors, Workers
from tests.integration.test_pause import until_held
from tests.support import FAST, wait_until


async def test_a_block_by_pattern_holds_those_keys_back_and_no_others(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Of any actor; keys with dots, spaces and other letters too."""
    ran: list[str] = []

    @app.actor
    async def one(key: str) -> None:
        ran.append(key)

    @app.actor
    async def two(key: str) -> None:
        ran.append(key)

    keys = ["doc-1", "doc-2", "doc-a.b", "doc-ü *", "Doc-3", "x-doc-4", "other"]
    hold = await client.block("doc-*", reason="they are broken")
    assert (hold.kind, hold.pattern, str(hold)) == ("keys", "doc-*", "keys doc-*")
    async with workers.run(app), supervisors.run(app):
        runs = [await client.submit((one, two)[i % 2].call(key), key=key) for i, key in enumerate(keys)]
        for run in runs[4:]:
            await run.result(10)
        await until_held(client, 4)
        assert sorted(ran) == sorted(keys[4:])
        (told,) = await client.blocks()
        assert (told.waiting, told.reason) == (4, "they are broken")
        ended = await client.unblock("doc-*")
        assert ended is not None
        for run in runs[:4]:
            await run.result(10)
    assert sorted(ran) == sorted(keys)
    assert await client.unblock("doc-*") is None


async def test_a_block_by_argument_holds_those_runs_back_and_no_others(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Equal values are equal however they were written; a default counts as given."""
    ran: list[Any] = []

    @app.actor
    async def send(customer: str, size: float = 1) -> None:
        ran.append((customer, size))

    @app.actor
    async def other(customer: str) -> None:
        ran.append((customer, None))

    await client.block(actor="send", args={"customer": "acme", "size": 1})
    async with workers.run(app), supervisors.run(app):
        calls = [send.call("acme"), send.call("acme", 1.0), send.call("acme", 2), send.call("Acme"), other.call("acme")]
        runs = [await client.submit(call) for call in calls]
        for run in runs[2:]:
            await run.result(10)
        await until_held(client, 2)
        told = [await client.held_by(run.key) for run in runs]
        assert [hold is not None for hold in told] == [True, True, False, False, False]
        assert ran == [("acme", 2), ("Acme", 1), ("acme", None)]
        await client.unblock(actor="send", args={"size": 1.0, "customer": "acme"})
        for run in runs[:2]:
            await run.result(10)


async def test_a_block_by_comparison_holds_those_runs_back_and_no_others(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Counted before it is made, told by `blocks`, and ended as it was given, in any order."""
    ran: list[Any] = []

    @app.actor
    async def send(customer: int | str | None, size: float = 1) -> None:
        ran.append((customer, size))

    where = [Where("customer", ">=", 100), Where("size", "between", (1, 2.5)), Where("customer", "!=", 105)]
    calls = [send.call(100), send.call(101, 2.5), *(send.call(c) for c in (99, 105, "100", None)), send.call(100, 2.6)]
    runs = [await client.submit(call) for call in calls]
    counted = await client.block(actor="send", where=where, dry_run=True)
    assert (counted.dry_run, counted.phases, await client.blocks()) == (True, {"queued": 2}, [])
    hold = await client.block(actor="send", where=where)
    assert hold.phases == {"queued": 2}
    assert str(hold) == "actor send with customer != 105 and customer >= 100, size <= 2.5 and size >= 1"
    async with workers.run(app), supervisors.run(app):
        for run in runs[2:]:
            await run.result(10)
        await until_held(client, 2)
        assert ran.count((100, 2.6)) == 1
        assert len(ran) == 5
        told = [await client.held_by(run.key) for run in runs]
        assert [one is not None for one in told] == [True, True, False, False, False, False, False]
        assert await client.unblock(actor="send", where=where[:2]) is None
        assert await client.unblock(actor="send", where=where[::-1]) is not None
        for run in runs[:2]:
            await run.result(10)


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (Where("custmer", ">=", 1), "where names 'custmer'.*no such argument"),
        (Where("size", "=>", 1), "where compares 'size' by '=>': known are ==, !="),
        (Where("size", ">", None), "where compares 'size' with None: only numbers and texts"),
        (Where("size", "<", float("nan")), "where compares 'size' with nan"),
        (Where("size", "<", True), "where compares 'size' with True"),
        (Where("size", ">", "1"), "where compares 'size' with '1', and its values are of type int"),
        (Where("customer", "<", 5), "where compares 'customer' with 5, and its values are of type str"),
        (Where("size", "between", 5), "where compares 'size' by between: give"),
        (Where("size", "between", (5, "6")), "where compares 'size' with .*only numbers and texts"),
        (Where("size", "between", (6, 5)), "nothing is between"),
        (Where("size", "!=", object()), "'size' cannot be said in JSON"),
        ([Where("size", "==", 1), Where("size", "<", 2)], "where says what 'size' equals, and more"),
        ("size >= 1", r"where must be of Where\(argument, op, value\)"),
        (7, r"where must be of Where\(argument, op, value\)"),
        (Where(7, ">", 1), r"where must be of Where"),  # type: ignore[arg-type]  # the point
    ],
)
async def test_a_comparison_that_cannot_be_is_refused_by_name(app: App, client: Client, where: Any, named: str) -> None:
    @app.actor
    async def send(customer: str, size: int = 1) -> None:
        return

    with pytest.raises(InvalidCall, match=named):
        await client.block(actor="send", where=where)
    with pytest.raises(InvalidCall, match="pattern is given with"):
        await client.block("a*", where=Where("size", ">", 1))
    with pytest.raises(InvalidCall, match="where says what 'size' equals"):
        await client.block(actor="send", args={"size": 1}, where=Where("size", ">", 1))
    assert await client.blocks() == []


async def test_a_run_that_waits_for_a_limit_or_a_rate_is_told_to(app: App, client: Client, workers: Workers) -> None:
    gate = asyncio.Event()

    @app.actor(limits=[Limit(1, per="case")])
    async def capped(case: str) -> None:
        await gate.wait()

    @app.actor(limits=[RateLimit(1, 60.0)])
    async def polite() -> None:
        """Return."""

    async with workers.run(app) as running:
        for key in ("inside", "waits", "next"):
            await client.submit(capped.call("x"), key=key)
        await (await client.submit(polite.call(), key="started")).wait(10)
        await client.submit(polite.call(), key="later")
        claims = running.worker.metrics.claims
        await wait_until(
            lambda: (claims["capped", "parked"], claims["polite", "parked"]) == (2, 1), description="they are parked"
        )
        (inside,) = [live.key for live in running.worker.table.all()]
        waits, later = await client.held_by("next" if inside == "waits" else "waits"), await client.held_by("later")
        assert waits is not None
        assert (waits.kind, waits.name, waits.args, waits.waiting) == ("limit", "capped", {"case": ('"x"',)}, 2)
        assert str(waits) == 'limit of actor capped for case="x": 1 at once'
        assert str(later) == "rate of actor polite: 1 starts in 60 s"
        assert await client.held_by(inside) is None
        gate.set()


async def test_a_block_by_argument_reads_arguments_that_lie_in_a_blob(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    app = App(namespace, config=replace(FAST, inline_limit_bytes=64, wake_limit_bytes=64))
    ran: list[str] = []

    @app.actor
    async def send(customer: str, text: str) -> None:
        ran.append(customer)

    async with app.connect(workers.url) as own, workers.run(app), supervisors.run(app):
        await own.block(actor="send", args={"customer": "acme"})
        runs = [await own.submit(send.call(customer, "x" * 500)) for customer in ("acme", "else")]
        await runs[1].result(10)
        await until_held(client, 1)
        await own.unblock(actor="send", args={"customer": "acme"})
        await runs[0].result(10)
    assert ran == ["else", "acme"]


async def test_what_two_switches_hold_starts_when_both_are_gone(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    ran: list[int] = []

    @app.actor
    async def work(n: int) -> None:
        ran.append(n)

    async with workers.run(app) as running, supervisors.run(app):
        await client.pause(actor="work")
        await client.block("doc-*")
        run = await client.submit(work.call(1), key="doc-1")
        await until_held(client, 1)
        await client.resume(actor="work")
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["work", "held"] == 2, description="it waits for the other one")
        assert not ran
        await client.unblock("doc-*")
        await run.result(10)


async def test_a_worker_that_does_not_know_a_paused_actor_has_its_runs_wait_all_the_same(
    app: App, namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """In a rolling deploy an old worker may be the one that meets them: neither offered nor looked at again and again."""

    @app.actor
    async def work() -> str:
        return "done"

    old = App(namespace, config=FAST)

    @old.actor
    async def older() -> None:
        return

    await client.pause(actor="work")
    run = await client.submit(work.call())
    async with supervisors.run(app):
        async with workers.run(old):
            await until_held(client, 1)
        async with workers.run(app):
            await client.resume(actor="work")
            assert await run.result(10) == "done"


async def test_in_memory_a_pause_ends_in_virtual_time(namespace: str) -> None:
    """An hour, and no other event in it: the end of a pause is something that happens."""
    app = App(namespace)

    @app.actor(queue="mail")
    async def send() -> str:
        return "sent"

    @app.actor
    async def work() -> str:
        return "done"

    async with memory(app) as client:
        begun = client.now()
        await client.pause(actor="work", duration=3_600)
        await client.pause(queue="mail", duration=7_200)
        runs = [await client.submit(work.call()), await client.submit(send.call())]
        assert await runs[0].result() == "done"
        assert 3_599 < client.now() - begun < 3_620
        assert await runs[1].result() == "sent"
        assert 7_199 < client.now() - begun < 7_220
        assert await client.blocks() == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "pattern is missing"),
        ({"pattern": "*"}, "fits every key"),
        ({"pattern": "$KV.*"}, "keep for themselves"),
        ({"pattern": "tenure.docs.*"}, "keep for themselves"),
        ({"pattern": ""}, "empty"),
        ({"pattern": 7}, "must be a str"),
        ({"pattern": "a*", "actor": "send"}, "one or the other"),
        ({"actor": "send"}, "pattern is missing"),
        ({"actor": "send", "args": {}}, "pattern is missing"),
        ({"actor": "send", "args": ["customer"]}, "must be a mapping"),
        ({"actor": "send", "args": {"custmer": 1}}, "no such argument"),
        ({"actor": "send", "args": {"customer": object()}}, "cannot be said in JSON"),
        ({"actor": "a b", "args": {"customer": 1}}, "a b"),
        ({"pattern": "a*", "duration": -5}, "duration"),
    ],
)
async def test_what_cannot_be_blocked_is_refused_by_name(
    app: App, client: Client, given: dict[str, Any], named: str
) -> None:
    @app.actor
    async def send(customer: str) -> None:
        return

    with pytest.raises(Exception, match=named) as refused:
        await client.block(**given)
    assert type(refused.value).__name__ in {"InvalidCall", "ConfigError"}
    assert await client.blocks() == []
