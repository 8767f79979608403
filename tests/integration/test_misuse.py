"""What a newcomer does wrong with two apps, two loops or a string is refused where it is done."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tenure import App, Client, ConfigError, Context, InvalidCall, RunFailed, Snooze, TenureError
from tests.conftest import Workers


async def test_a_call_of_another_apps_actor_is_refused(app: App, client: Client, workers: Workers) -> None:
    """Stored, it would wait for ever: no worker of this namespace knows the actor."""
    other = App("other")

    @other.actor
    async def foreign() -> None: ...

    @app.actor(retry=None)
    async def parent(ctx: Context) -> None:
        ctx.spawn(foreign.call(), key="child")

    with pytest.raises(InvalidCall, match=r"foreign belongs to app 'other'"):
        await client.submit(foreign.call(), key="k")
    assert await client.status("k") is None
    async with workers.run(app):
        run = await client.submit(parent.call())
        with pytest.raises(RunFailed, match=r"foreign belongs to app 'other'"):
            await run.result(timeout=10)


async def test_a_client_in_another_event_loop_says_so_and_does_not_hang(client: Client) -> None:
    def elsewhere() -> None:
        asyncio.run(client.status("k"))

    with pytest.raises(TenureError, match="another event loop"):
        await asyncio.to_thread(elsewhere)


async def test_leaving_a_worker_that_works_drains_it(app: App, client: Client, nats_server: str) -> None:
    """An error in the caller's block, or Ctrl-C: the body ends and its outcome is stored, nothing is done twice."""
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.actor
    async def work(ctx: Context) -> int:
        started.set()
        await may_end.wait()
        return ctx.attempt

    async def fail_beside_it() -> None:
        async with app.worker(nats_server) as worker:
            working.append(asyncio.create_task(worker.run()))
            await started.wait()
            asyncio.get_running_loop().call_later(0.1, may_end.set)
            raise LookupError

    working: list[asyncio.Task[None]] = []
    run = await client.submit(work.call(), key="k")
    with pytest.raises(LookupError):
        await fail_beside_it()
    await working[0]
    assert await run.result(timeout=1) == 1


async def test_a_result_that_is_not_there_in_time_says_whose(app: App, client: Client) -> None:
    @app.actor
    async def idle() -> None: ...

    run = await client.submit(idle.call(), key="k")
    with pytest.raises(TimeoutError, match=r"'k' has no outcome yet, after waiting 0\.05 s"):
        await run.result(timeout=0.05)


async def test_what_is_there_is_returned_however_short_the_wait(app: App, client: Client, workers: Workers) -> None:
    """A ``timeout`` bounds the wait for the outcome, not the look at it; and what is not there is not waited for."""

    @app.actor
    async def quick() -> int:
        return 7

    async with workers.run(app):
        run = await client.submit(quick.call(), key="k")
        assert await run.result(timeout=5) == 7
    for timeout in (0, 0.0, 1e-6):
        assert await run.result(timeout=timeout) == 7
        assert await run.result(timeout=timeout, follow=True) == 7
        assert (await run.wait(timeout=timeout)).phase == "succeeded"
    idle = await client.submit(quick.call(), key="idle")
    for timeout in (0, 1e-6):
        with pytest.raises(TimeoutError, match="'idle' has no outcome yet"):
            await idle.result(timeout=timeout)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": 5}, "url must be a str"),
        ({"queues": "default"}, "list of names"),
        ({"queues": 5}, "queues must be a list of names"),
        ({"queues": [5]}, "queue 5"),
        ({"concurrency": True}, "concurrency"),
        ({"concurrency": "5"}, "concurrency"),
        ({"nosuch": 5}, "no option 'nosuch'"),
        ({"error_cb": print}, "option 'error_cb' is Tenure's own"),
    ],
)
def test_a_worker_option_of_another_type_is_named(app: App, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        app.worker(**options)


@pytest.mark.parametrize("option", ["bogus", "servers", "name"])
def test_a_connection_option_that_nobody_knows_is_refused_at_once(app: App, option: str) -> None:
    doors: tuple[Any, ...] = (app.connect, app.worker, app.supervisor)
    for door in doors:
        with pytest.raises(ConfigError, match=f"option '{option}'"):
            door(**{option: 1})
        door("nats://127.0.0.1:1", user="a", password="b")  # noqa: S106  (of no server)


def test_snooze_takes_what_delay_takes_and_names_what_it_does_not() -> None:
    assert Snooze(timedelta(minutes=1)).delay == Snooze(60).delay
    for delay in ("5", -1, float("nan"), None, True, 10**400):
        with pytest.raises(InvalidCall, match="Snooze: delay must be"):
            Snooze(delay)  # type: ignore[arg-type]  # the point of the test


async def test_an_actor_that_is_called_instead_of_making_a_call_is_told_how(app: App, client: Client) -> None:
    @app.actor
    async def greet(name: str) -> str:
        raise NotImplementedError

    with pytest.raises(
        InvalidCall,
        match=r"got coroutine: greet\(\.\.\.\) runs the body itself, greet\.call\(\.\.\.\) is what to submit",
    ):
        await client.submit(greet("Ada"), key="k")  # type: ignore[arg-type]  # the mistake
    assert await client.status("k") is None


async def test_a_plain_actor_that_awaits_nothing_is_told_to_be_async(
    app: App, client: Client, workers: Workers
) -> None:
    """Neither it is tried again, nor does Python complain of a coroutine that was never awaited."""

    async def inner() -> int:
        raise NotImplementedError

    @app.actor
    def forgets() -> object:
        return inner()

    async with workers.run(app):
        run = await client.submit(forgets.call())
        with pytest.raises(RunFailed, match=r"the result is a coroutine: make the actor `async def`"):
            await run.result(timeout=10)
        assert (await run.wait()).attempt == 1
