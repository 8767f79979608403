"""``isolation="process"``: bodies in child processes, their context, their ends, and what is left of them (nothing)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from tenure import App, Client, ConfigError, Run, RunCancelled, RunFailed, RunSuperseded
from tests.conftest import Workers
from tests.support import FAST, alive, close_session, lines, wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def app(tasks: Any) -> App:
    found: App = tasks.app
    return found


def descriptors() -> int:
    return psutil.Process().num_fds()


def reapers() -> list[str]:
    """Threads that wait for the end of a child."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tenure-child")]


async def test_a_body_has_its_context_in_a_process_of_its_own(client: Client, workers: Workers, tasks: Any) -> None:
    async with workers.run(tasks.app):
        run = await client.submit(tasks.about.call(), key="k")
        said = await run.result(10)
        again = await (await client.submit(tasks.about.call(), key="k")).result(10)
        doubled, pid = await (await client.submit(tasks.double.call(21))).result(10)
    assert said["pid"] != os.getpid()
    assert said["fence"] > 0
    names = ("key", "generation", "attempt", "failures", "deadline", "stopping", "reason", "app")
    assert [said[name] for name in names] == ["k", 1, 1, 0, False, False, None, True]
    assert said["threads"] == ["MainThread", "tenure"]
    assert again["generation"] == 2
    assert again["fence"] > said["fence"]
    assert (doubled, pid) == (42, again["pid"]) == (42, said["pid"]), "one warm child serves them all"


async def test_what_a_body_says_and_asks_for_reaches_the_outcome(
    client: Client, workers: Workers, tasks: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Progress and log events while it runs; spawn and reschedule with its outcome; what it prints on the worker's stderr."""
    async with workers.run(tasks.app) as running:
        run = await client.submit(tasks.tells.call(), key="k")

        async def noted() -> Any:
            status = await run.status()
            return status and status.progress

        progress = await wait_until(noted, description="progress is told")
        assert (progress.done, progress.total, progress.note) == (3.0, 10.0, "third")
        running.worker.stop()  # the body sees `drain` and returns: that is a result
        await running.task
    assert await run.result(5) is None
    spoken = [record for record in caplog.records if "body.spoke" in record.getMessage()]
    assert [(record.name, record.levelno) for record in spoken] == [("tenure.body", logging.WARNING)]
    assert "word='hello'" in spoken[0].getMessage()
    assert "key='k'" in spoken[0].getMessage()
    assert "printed by a body" in capfd.readouterr().err
    status = await client.status("k")
    assert status is not None
    assert (status.actor, status.phase, status.generation) == ("echo", "scheduled", 2)
    spawned = await client.run("spawned")
    async with workers.run(tasks.app):
        assert (await spawned.result(10))[0] == 42


@pytest.mark.parametrize(
    ("how", "error", "attempts"),
    [
        ("fail", "Fail: no use", 1),
        ("raise", "KeyError: 'lost'", 2),
        ("stopped", "Stopped: says who", 2),
        ("lock", "Unencodable: the result (lock) cannot be encoded", 1),
        ("exit", "SystemExit: 3", 2),
        ("stop", "StopAsyncIteration", 2),
        ("interrupt", "KeyboardInterrupt", 2),
        ("close", "GeneratorExit", 2),
    ],
)
async def test_errors_keep_their_meaning(
    client: Client, workers: Workers, tasks: Any, how: str, error: str, attempts: int
) -> None:
    async with workers.run(tasks.app):
        run = await client.submit(tasks.ends.call(how))
        with pytest.raises(RunFailed) as failed:
            await run.result(10)
        assert f"{failed.value.error_type}: {failed.value.message}".startswith(error)
        assert "isolated.py" in failed.value.traceback or how in {"lock", "stop"}
        status = await run.status()
        assert status is not None
        assert status.attempt == attempts


async def test_a_snooze_is_no_failure_and_large_values_travel(client: Client, workers: Workers, tasks: Any) -> None:
    """Arguments over the wake-up's limit (their record is read first) and a result that goes to the blob store."""
    data = b"x" * 30_000
    async with workers.run(tasks.app):
        assert await (await client.submit(tasks.ends.call("snooze"))).result(10) == [2, 0]
        assert await (await client.submit(tasks.echo.call(data, times=20))).result(10) == data * 20
        with pytest.raises(RunFailed, match="can be stored"):
            await (await client.submit(tasks.echo.call(data, times=2_000))).result(20)


@pytest.mark.parametrize(("how", "said"), [("exit", "exit code 7"), ("kill", "SIGKILL (9)")])
async def test_scenario_26_a_body_that_takes_its_process_along_counts_as_a_failure(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path, how: str, said: str
) -> None:
    """hindsight#2786: ``os._exit(1)`` in the body, max_attempts 3: failed after 3, and the worker goes on."""
    log = tmp_path / "log"
    async with workers.run(tasks.app) as running:
        with pytest.raises(RunFailed, match=said.replace("(", r"\(").replace(")", r"\)")) as failed:
            await (await client.submit(tasks.dies.call(how, str(log)), key="k")).result(15)
        assert failed.value.error_type == "ProcessDied"
        (letter,) = await client.dead.list(key="k")
        assert (letter.failure.type, letter.attempts, letter.failures) == ("ProcessDied", 3, 3)
        assert log.read_text().splitlines() == ["1 0", "2 1", "3 2"]
        assert await (await client.submit(tasks.dies.call("exit once", str(log)))).result(10) == "attempt 2"
        assert running.worker.metrics.outcomes["dies", "retried"] == 3


@pytest.mark.parametrize("kind", ["sleeps", "checks"])
@pytest.mark.parametrize("reason", ["cancel", "superseded"])
async def test_a_body_in_a_child_is_told_why_it_must_stop(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path, kind: str, reason: str
) -> None:
    log = tmp_path / "log"
    async with workers.run(tasks.app):
        run = await client.submit(getattr(tasks, kind).call(str(log)), key="k")
        await lines(log, 1)
        if reason == "cancel":
            await run.cancel()
            with pytest.raises(RunCancelled):
                await run.result(5)
        else:
            following = await client.replace(tasks.double.call(1), key="k")
            with pytest.raises(RunSuperseded):
                await run.result(5)
            assert (await following.result(5))[0] == 2
    how = "cancelled" if kind == "sleeps" else "stopped"
    assert log.read_text().splitlines() == ["start", f"{how} {reason}"]


@pytest.mark.parametrize("kind", ["deaf", "swallows", "breeds"])
@pytest.mark.parametrize("reason", ["cancel", "superseded"])
async def test_a_body_that_ignores_its_stop_is_killed_after_its_grace_and_its_slot_comes_back(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path, kind: str, reason: str
) -> None:
    """One slot.

    The child is gone before the outcome is stored, and what its body started is killed with it; the slot is free at once.
    """
    log = tmp_path / "log"
    async with workers.run(tasks.app, concurrency=1) as running:
        run = await client.submit(getattr(tasks, kind).call(str(log)), key="k")
        pids = [int(word) for word in (await lines(log, 1))[0].split()[1:]]
        assert all(map(alive, pids))
        if reason == "cancel":
            await run.cancel()
            with pytest.raises(RunCancelled):
                await run.result(2)
        else:
            following = await client.replace(tasks.double.call(1), key="k")
            assert (await following.result(5))[0] == 2
        assert not alive(pids[0])
        await wait_until(lambda: not any(map(alive, pids)), description="what it started is gone", timeout=1)
        assert (await (await client.submit(tasks.double.call(2))).result(5))[0] == 4
        assert not running.worker.table.stuck
        outcomes = {what: n for (name, what), n in running.worker.metrics.outcomes.items() if n and name == kind}
        assert outcomes == ({"cancelled": 1} if reason == "cancel" else {})
        assert running.worker.metrics.superseded[kind, "tail"] == (reason == "superseded")


async def test_a_timeout_kills_the_child_and_retries(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with workers.run(tasks.app, concurrency=1) as running:
        run = await client.submit(tasks.overstays.call(str(log)))
        assert await run.result(10) == "attempt 2"
        assert log.read_text().splitlines() == ["start 1", "start 2"]
        assert not any(running.worker.metrics.fenced.values())
        status = await run.status()
        assert status is not None
        assert status.failures == 1
        tasks.deaf.task = replace(tasks.deaf.task, policy=replace(tasks.deaf.task.policy, timeout=0.3))
        with pytest.raises(RunFailed) as failed:  # by its timeout, not by the death that this means for its child
            await (await client.submit(tasks.deaf.call(str(log)))).result(10)
        assert failed.value.error_type == "AttemptTimeout"


async def test_a_plain_body_in_a_child_reports_and_may_finish_in_a_drain_though_it_checks(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with workers.run(tasks.app) as running:
        run = await client.submit(tasks.goes_on.call(str(log)))
        await lines(log, 1)

        async def reported() -> bool:
            status = await run.status()
            return status is not None and status.progress is not None and status.progress.done == 3

        await wait_until(reported, description="what it reported is stored")
        running.worker.stop()
        assert (await lines(log, 2))[1] == "went on drain"
        tasks.mark(f"{log}.open")
        await running.task
    assert await run.result(5) == 1


async def test_a_drain_tells_then_kills_and_hands_back_uncounted(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path
) -> None:
    """One obeys its cancellation at the drain's end, one hears nothing: both wait again, no failure counted."""
    tasks.app.config = replace(FAST, drain_seconds=0.1)
    log, other = tmp_path / "log", tmp_path / "other"
    async with workers.run(tasks.app) as running:
        runs = [await client.submit(tasks.deaf.call(str(log))), await client.submit(tasks.sleeps.call(str(other)))]
        pid = int((await lines(log, 1))[0].split()[1])
        await lines(other, 1)
        await running.stop()
        assert not alive(pid)
        assert running.worker.ending.given_up == 0
    assert other.read_text().splitlines() == ["start", "cancelled drain"]
    for run in runs:
        status = await run.status()
        assert status is not None
        assert (status.phase, status.attempt, status.failures, status.holder) == ("queued", 1, 0, None)


async def test_a_lost_lease_kills_the_children_at_once(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path
) -> None:
    """A supervisor closes the session while a deaf body runs: grace or not, it may be another's run already."""
    log = tmp_path / "log"
    tasks.deaf.task = replace(tasks.deaf.task, policy=replace(tasks.deaf.task.policy, grace=30.0))
    async with workers.run(tasks.app) as running:
        first = running.worker.lease.id
        await client.submit(tasks.deaf.call(str(log)), key="k")
        pid = int((await lines(log, 1))[0].split()[1])
        seen = await client.stores.sessions.read(first)
        assert seen is not None
        await client.stores.sessions.write(replace(seen.session, closed="expired"), seen.revision)
        await wait_until(lambda: not alive(pid), description="the child is gone", timeout=3)
        again = int((await lines(log, 2))[1].split()[1])  # its new session runs it again
        assert running.worker.lease.id != first
        os.kill(again, signal.SIGKILL)  # else the drain waits for its grace


async def test_a_cold_start_does_not_eat_the_timeout(
    client: Client, workers: Workers, tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing the actor takes twice its timeout: the child is ready before the run is claimed."""
    monkeypatch.setenv("TENURE_TEST_SLOW_IMPORT", "1.0")
    async with workers.run(tasks.app):
        run = await client.submit(tasks.punctual.call())
        assert await run.result(10) == "in time"
        status = await run.status()
        assert status is not None
        assert status.attempt == 1


async def test_a_drain_does_not_wait_for_a_child_that_starts(
    client: Client, workers: Workers, tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is claimed yet: the wake-up goes back at once."""
    monkeypatch.setenv("TENURE_TEST_SLOW_IMPORT", "20")
    async with workers.run(tasks.app) as running:
        run = await client.submit(tasks.punctual.call())
        await wait_until(lambda: len(running.worker.table) == 1, description="the run is in hand")
        async with asyncio.timeout(3):
            await running.stop()
    status = await run.status()
    assert status is not None
    assert (status.phase, status.attempt) == ("queued", 0)


@pytest.mark.parametrize(
    ("variable", "error"),
    [
        ("TENURE_TEST_BROKEN_IMPORT", "ImportError: a library is missing here"),
        ("TENURE_TEST_SLOW_IMPORT", "ProcessDied: the child process"),
        ("TENURE_TEST_NAMESPACE", "ConfigError: actor 'punctual' belongs to namespace '30'"),
    ],
)
async def test_a_child_that_cannot_have_the_actor_fails_the_attempt_and_says_why(
    client: Client, workers: Workers, tasks: Any, monkeypatch: pytest.MonkeyPatch, variable: str, error: str
) -> None:
    monkeypatch.setenv(variable, "30")
    if "ProcessDied" in error:  # the others say so themselves, however long a loaded machine takes to start them
        tasks.app.config = replace(FAST, child_start_seconds=0.8)
    async with workers.run(tasks.app):
        with pytest.raises(RunFailed) as failed:
            await (await client.submit(tasks.punctual.call())).result(10)
    assert f"{failed.value.error_type}: {failed.value.message}".startswith(error)


async def test_children_are_kept_warm_and_let_go(client: Client, workers: Workers, tasks: Any) -> None:
    """Two run at once, so there are two; without work they end after a while, and leave neither descriptor nor thread."""
    tasks.app.config = replace(FAST, child_idle_seconds=0.5)
    async with workers.run(tasks.app, concurrency=2) as running:
        await (await client.submit(tasks.double.call(0))).result(10)
        await wait_until(lambda: not children() and not reapers(), description="the first is let go")
        before = descriptors()
        runs = await client.submit_many([(tasks.double.call(n), f"k{n}") for n in range(30)])
        pids = {(await run.result(10))[1] for run in runs if isinstance(run, Run)}
        assert len(pids) <= 2
        assert {child.pid for child in children()} <= pids
        await wait_until(lambda: not children() and not reapers(), description="they are let go")
        await wait_until(lambda: descriptors() <= before, description="nothing is left")
        assert running.worker.metrics.outcomes["double", "succeeded"] == 31


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if is_ours(child)]


def is_ours(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return "tenure.worker.child" in " ".join(process.cmdline())
    return False


@pytest.mark.parametrize("where", ["main", "local", "value"])
def test_what_a_fresh_interpreter_cannot_import_is_refused_at_registration(app: App, where: str) -> None:
    def work() -> None: ...

    if where == "main":
        work.__module__, work.__qualname__ = "__main__", "work"
    says = {"main": "move the actor", "local": "top of its module", "value": "must be thread or process"}
    with pytest.raises(ConfigError, match=f"actor work: isolation.*{says[where]}"):
        app.actor(isolation="fork" if where == "value" else "process")(work)  # type: ignore[call-overload]  # the mistake
    assert "work" not in app.actors


async def test_a_forked_copy_of_a_child_does_not_speak_for_it(
    client: Client, workers: Workers, tasks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with workers.run(tasks.app):
        assert await (await client.submit(tasks.forks.call())).result(10) == "forked"
    assert "copy.spoke" not in caplog.text


async def test_a_lost_lease_kills_the_children_of_a_drain_at_once(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path
) -> None:
    """They were told to end within their grace; then a supervisor closes the session."""
    tasks.app.config = replace(FAST, drain_seconds=0.01)
    log = tmp_path / "log"
    tasks.deaf.task = replace(tasks.deaf.task, policy=replace(tasks.deaf.task.policy, grace=30.0))
    async with workers.run(tasks.app) as running:
        await client.submit(tasks.deaf.call(str(log)), key="k")
        pid = int((await lines(log, 1))[0].split()[1])
        (live,) = running.worker.table.all()
        running.worker.stop()
        await wait_until(lambda: live.interrupted, description="it is being ended")
        await close_session(client, running.worker.lease.id)
        await wait_until(lambda: not alive(pid), description="the child is gone", timeout=3)
        await running.task
