"""Scenario 43.

One key submitted at once by many is one run that all of them get; a producer killed half-way is found.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tenure import App, Client, Context, KeyConflict, KeyIsLive, OutcomeUnknown, Run, Unavailable
from tests.conftest import Workers
from tests.support import wait_until

KILLED_PRODUCER = """
    import asyncio, os, signal, sys
    from tenure import App

    _, namespace, url = sys.argv
    app = App(namespace)

    @app.actor
    async def once(text: str) -> str: ...

    async def main():
        async with app.connect(url) as client:
            async def killed(*_args):
                os.kill(os.getpid(), signal.SIGKILL)

            client.stores.work.wake = killed
            await client.submit(once.call("killed"), key="k")

    asyncio.run(main())
"""


def register(app: App) -> list[tuple[int, int, str]]:
    """An actor that says what ran; returns the (generation, attempt, argument) of its bodies."""
    bodies: list[tuple[int, int, str]] = []

    @app.actor(name="once")
    async def once(ctx: Context, text: str) -> str:
        bodies.append((ctx.generation, ctx.attempt, text))
        return text

    return bodies


async def clients(stack: AsyncExitStack, app: App, url: str, number: int) -> list[Client]:
    return [await stack.enter_async_context(app.connect(url)) for _ in range(number)]


async def at_once(many: list[Client], app: App, **options: Any) -> list[Run[str] | BaseException]:
    """100 submits of one key, each with its own argument, from all clients."""
    call = app.actors["once"].call
    out: list[Run[str] | BaseException] = await asyncio.gather(
        *(many[n % len(many)].submit(call(f"{n}"), key="k", **options) for n in range(100)), return_exceptions=True
    )
    return out


async def test_scenario_43_a_hundred_concurrent_submits_are_one_run_that_all_callers_get(
    app: App, workers: Workers, nats_server: str
):
    """Each creates with "expects 0"; the server lets one in, 99 are refused, read, and find it live."""
    bodies = register(app)
    async with AsyncExitStack() as stack:
        many = await clients(stack, app, nats_server, 4)
        runs = [run for run in await at_once(many, app) if isinstance(run, Run)]
        assert len(runs) == 100
        assert {(run.generation, run.run_id) for run in runs} == {(1, runs[0].run_id)}
        assert sum(run.accepted for run in runs) == 1
        async with workers.run(app):
            results = await asyncio.gather(*(run.result(timeout=10) for run in runs))
        winner = next(n for n, run in enumerate(runs) if run.accepted)
        assert set(results) == {f"{winner}"}
    assert bodies == [(1, 1, f"{winner}")]


async def test_scenario_43_a_hundred_concurrent_submits_while_workers_run_start_no_body_nobody_was_told_of(
    app: App, workers: Workers, nats_server: str
):
    """Runs end between the submits, so new generations begin.

    As many bodies as accepted runs, and each caller has its own.
    """
    bodies = register(app)
    async with workers.run(app), workers.run(app), AsyncExitStack() as stack:
        many = await clients(stack, app, nats_server, 4)
        runs = [run for run in await at_once(many, app) if isinstance(run, Run)]
        assert len(runs) == 100
        accepted = {run.run_id: n for n, run in enumerate(runs) if run.accepted}
        assert {run.run_id for run in runs} == set(accepted)
        newest = max(run.generation for run in runs)
        await many[0].run("k").result(timeout=10)
    assert sorted(generation for generation, _, _ in bodies) == list(range(1, newest + 1))
    assert len(accepted) == newest
    assert {int(text) for _, _, text in bodies} == set(accepted.values())


async def test_reject_lets_one_of_a_hundred_in(app: App, nats_server: str):
    """The other 99 are told which run is live."""
    register(app)
    async with AsyncExitStack() as stack:
        many = await clients(stack, app, nats_server, 4)
        out = await at_once(many, app, if_live="reject")
    runs = [run for run in out if isinstance(run, Run)]
    refused = [error for error in out if isinstance(error, KeyIsLive)]
    assert (len(runs), len(refused)) == (1, 99)
    assert {error.run_id for error in refused} == {runs[0].run_id}


async def test_other_arguments_for_a_live_key_are_a_conflict_on_request(app: App, nats_server: str):
    """if_differs="error": the same arguments join, different ones are told."""
    register(app)
    async with AsyncExitStack() as stack:
        many = await clients(stack, app, nats_server, 4)
        out = await at_once(many, app, if_differs="error")
        [winner] = [run for run in out if isinstance(run, Run)]
        conflicts = [error for error in out if isinstance(error, KeyConflict)]
        same = app.actors["once"].call(f"{out.index(winner)}")
        again = await many[1].submit(same, key="k", if_differs="error")
    assert len(conflicts) == 99
    assert (again.run_id, again.accepted) == (winner.run_id, False)


async def test_a_hundred_concurrent_replaces_are_a_hundred_generations_and_the_last_one_wins(
    app: App, workers: Workers, nats_server: str
):
    """Every replace is accepted; before a worker starts, ninety-nine of them are void: one body, one outcome."""
    bodies = register(app)
    async with AsyncExitStack() as stack:
        many = await clients(stack, app, nats_server, 4)
        call = app.actors["once"].call
        runs = await asyncio.gather(*(many[n % 4].replace(call(f"{n}"), key="k") for n in range(100)))
        assert sorted(run.generation for run in runs) == list(range(1, 101))
        last = max(runs, key=lambda run: run.generation)
        async with workers.run(app) as running:
            text = await last.result(timeout=10)
            metrics = running.worker.metrics
            await wait_until(lambda: metrics.superseded["once", "head"] == 99, description="99 stale copies refused")
    assert text == f"{runs.index(last)}"
    assert bodies == [(100, 1, text)]


async def test_scenario_43_a_producer_killed_between_record_and_wake_up_is_found_by_the_next_submit(
    app: App, client: Client, workers: Workers, nats_server: str, namespace: str
):
    """A kill -9 after the record is stored: nothing wakes the key.

    Who joins the stale run looks, and gives it its wake-up.
    """
    bodies = register(app)
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", textwrap.dedent(KILLED_PRODUCER), namespace, nats_server],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    status = await client.status("k")
    assert status is not None
    async with workers.run(app) as running:
        assert await running.worker.stores.work.pending("default", "normal") == (0, 0)
        joined: list[Run[str]] = []

        async def ran() -> bool:
            joined.append(await client.submit(app.actors["once"].call("later"), key="k"))
            return bool(bodies)

        await wait_until(ran, description="a later submit wakes the run")
    assert not joined[0].accepted  # one that came when it was over began a generation of its own
    assert joined[0].run_id == status.run_id
    assert bodies[0] == (1, 1, "killed")
    assert [text for _, _, text in bodies].count("killed") == 1


async def test_scenario_43_a_submit_interrupted_between_record_and_wake_up_is_found_by_the_next(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
):
    """The wake-up could not be stored: the run is stored for ever, and the error says so."""
    bodies = register(app)
    call = app.actors["once"].call("first")

    async def interrupted(*_args: object) -> None:
        raise Unavailable("no wake-up now")

    with monkeypatch.context() as patch:
        patch.setattr(client.stores.work, "wake", interrupted)
        with pytest.raises(OutcomeUnknown):
            await client.submit(call, key="k")
    status = await client.status("k")
    assert status is not None
    assert status.phase == "queued"
    joined: list[str] = []
    async with workers.run(app):

        async def ran() -> bool:
            joined.append((await client.submit(call, key="k")).run_id)
            return bool(bodies)

        await wait_until(ran, description="a later submit wakes the run")
    assert bodies[0] == (1, 1, "first")
    assert joined[0] == status.run_id
