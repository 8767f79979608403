"""``tenure supervisor`` and ``worker --with-supervisor``: as processes, and what they do for a worker that is killed."""

from __future__ import annotations

import asyncio
import re
import signal
import time

import pytest

from tenure import App, Client
from tenure.cli.problems import Exit
from tenure.nats.embedded import EmbeddedServer
from tests.e2e.commands import Cli, Worker, end, line_of
from tests.support import FAST, wait_until

_TTL_SECONDS = 2.0
"""Of the app in ``commands.TASKS``."""


async def killed_in_mid_run(own: Cli, client: Client) -> float:
    """Submit a run, kill the worker that has begun it, and return when."""
    app = client.app

    @app.actor
    async def nap(seconds: float) -> str:
        return "rested"

    with own.worker("--queue", "default") as worker:
        run = await client.submit(nap.call(1.0), key="k")

        async def begun() -> bool:
            status = await run.status()
            return status is not None and status.phase == "running"

        await wait_until(begun, description="the worker runs it")
        worker.process.send_signal(signal.SIGKILL)
        worker.process.wait(5)
        return time.monotonic()


async def test_a_supervisor_has_the_runs_of_a_killed_worker_taken_over(own: Cli) -> None:
    """Kill -9 in mid-run: the supervisor closes the session, the other worker starts attempt 2 within ttl and seconds."""
    async with App(own.namespace, config=FAST).connect(own.url) as client:
        process = own.start("supervisor", "tasks:app", "--metrics-port", "0", "--log-json")
        supervisor = Worker(process, line_of(process))
        assert supervisor.said["event"] == "supervisor.ready"
        assert supervisor.get("/ready") == (200, "ready\nrepaired: nothing yet\n")
        killed_at = await killed_in_mid_run(own, client)
        with own.worker():
            status = await client.run("k").wait(timeout=15)
            assert (status.phase, status.attempt, status.generation) == ("succeeded", 2, 1)
            assert time.monotonic() - killed_at < _TTL_SECONDS + 1.0 + 4.0  # a run of 1 s, a start of a worker, seconds
        ready, report = supervisor.get("/ready")
        assert (ready, report) == (200, "ready\nrepaired: session 1, takeover 1\n")
        text = supervisor.get("/metrics")[1]
        assert re.search(r'tenure_repairs_total\{kind="takeover"\} 1\.0', text)
        assert re.search(r"tenure_sweep_seconds 0\.\d", text)
        assert end(process) == 0


@pytest.mark.parametrize("body", ["none", pytest.param("blocking", marks=pytest.mark.long)])
async def test_a_worker_with_a_supervisor_looks_after_others(own: Cli, body: str) -> None:
    """Also while a body blocks the worker's event loop: the supervisor has a thread of its own."""
    async with App(own.namespace, config=FAST).connect(own.url) as client:
        if body == "blocking":
            source = own.module.read_text(encoding="utf-8")
            own.module.write_text(
                source.replace("retry=None)\nasync def block", 'retry=None, queue="other")\nasync def block')
            )
        process = own.start(
            *["worker", "tasks:app", "--with-supervisor", "--queue", "other", "--metrics-port", "0", "--log-json"]
        )
        beside = Worker(process, line_of(process))
        assert beside.get("/ready") == (200, "ready\nrepaired: nothing yet\n")
        if body == "blocking":
            own("submit", "tasks:app", "block", "--arg", "seconds=6")
            await wait_until((own.folder / "blocking-body").exists, description="the loop is blocked")
        await killed_in_mid_run(own, client)
        await wait_until(
            lambda: "takeover 1" in beside.get("/ready")[1],
            description="the dead worker's run gets a wake-up",
            timeout=6,
        )
        assert 'tenure_repairs_total{kind="session"} 1.0' in beside.get("/metrics")[1]
        await asyncio.to_thread(end, process)


def test_a_supervisor_without_a_server_is_exit_code_3(own: Cli) -> None:
    own.url = "nats://127.0.0.1:1"
    assert "cannot reach a NATS server" in own("supervisor", "tasks:app", code=3).stderr
    assert "cannot reach a NATS server" in own("worker", "tasks:app", "--with-supervisor", code=3).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_supervisor_says_when_it_is_ready_and_ends_when_told(own: Cli, number: signal.Signals) -> None:
    process = own.start("supervisor", "tasks:app")
    assert re.match(r"tenure supervisor ready: namespace \S+, pid \d+\n", line_of(process))
    process.send_signal(number)
    assert process.wait(10) == 0


@pytest.mark.parametrize("command", [("supervisor",), ("worker", "--with-supervisor")])
async def test_who_ends_when_told_leaves_closed_sessions(own: Cli, command: tuple[str, ...]) -> None:
    """Nobody waits for a ttl, and what was in hand counts no failure."""
    process = own.start(command[0], "tasks:app", *command[1:])
    line_of(process)
    assert await asyncio.to_thread(end, process) == 0
    async with App(own.namespace, config=FAST).connect(own.url) as client:
        kinds = {seen.session.kind: seen.session.closed for seen in await client.stores.sessions.all()}
    assert kinds == dict.fromkeys({"supervisor", command[0]}, "drain")


@pytest.mark.parametrize(
    ("signals", "code"), [((signal.SIGTERM,), Exit.UNAVAILABLE), ((signal.SIGINT, signal.SIGINT), Exit.INTERRUPTED)]
)
async def test_a_supervisor_without_its_server_ends_within_bounds_and_says_so(
    own: Cli, signals: tuple[signal.Signals, ...], code: Exit
) -> None:
    """The server dies, then it is told to end: its session cannot be closed. A second Ctrl-C does not wait for the first."""
    source = own.module.read_text(encoding="utf-8")
    seconds = 0.2 if len(signals) == 1 else 60.0
    own.module.write_text(
        source.replace("ack_wait_seconds=4.0", f"ack_wait_seconds=200.0, request_timeout_seconds={seconds}")
    )
    with EmbeddedServer() as server:
        own.url = server.url
        process = own.start("supervisor", "tasks:app")
        line_of(process)
        server.kill()
        for number in signals:
            process.send_signal(number)
            await asyncio.sleep(0.2)  # paused: two signals at once would be one
        assert await asyncio.to_thread(process.wait, 10) == code
    said = "other supervisors close the session of this one once 2 s are over"
    assert (said in (own.folder / "stderr.log").read_text()) == (code == Exit.UNAVAILABLE)
