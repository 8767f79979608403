"""The commands that stay: server, worker and dev, their signals and their ends; and setup."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from tenure import App
from tenure.cli.problems import Exit
from tenure.nats.connection import Connection
from tenure.nats.embedded import EmbeddedServer
from tests.e2e.commands import Cli, end, line_of
from tests.support import FAST, wait_until

# -- server and setup ------------------------------------------------------------------------------------------------


async def test_server_serves_until_it_is_told_to_stop_and_keeps_its_store(own: Cli) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        serving = own.start("server", "--store", str(own.folder / "store"), "--port", "0")
        url = re.findall(r"nats://[\d.:]+", line_of(serving))[0]
        did = own.json("setup", "tasks:app", "--url", url)["streams"][0]["did"]
        assert did == ("created" if number == signal.SIGTERM else "unchanged")
        serving.send_signal(number)
        assert serving.wait(10) == 0


@pytest.mark.parametrize("command", [["server"], ["dev", "tasks:app"]], ids=["server", "dev"])
async def test_a_port_or_a_store_in_use_is_exit_code_2_and_a_sentence(own: Cli, command: list[str]) -> None:
    own.url = ""
    with EmbeddedServer(own.folder / "store") as server:
        port = server.url.rpartition(":")[2]
        taken = own(*command, "--store", "other", "--port", port, code=2).stderr
        assert re.fullmatch(rf"tenure: port {port} is taken: .*give another --port.*\n", taken)
        joined = own(*command, "--store", "store", "--port", "0", code=2).stderr
        assert re.fullmatch(r"tenure: the store \S+ is in use by another nats-server: .*\n", joined)


async def test_setup_says_what_differs_and_changes_it(own: Cli) -> None:
    assert {stream["did"] for stream in own.json("setup", "tasks:app")["streams"]} == {"created"}
    app = App(own.namespace, config=FAST)
    connection = await Connection.open(own.url, FAST, name="test")
    try:
        info = await connection.api(f"STREAM.INFO.{app.names.runs_stream}", {})
        assert isinstance(info, dict)
        changed = info["config"] | {"subject_delete_marker_ttl": 60_000_000_000}
        assert isinstance(await connection.api(f"STREAM.UPDATE.{app.names.runs_stream}", changed), dict)
    finally:
        await connection.close()
    assert "run `tenure setup` to change it" in own("submit", "tasks:app", "say", "--arg", "text=x", code=2).stderr
    table = own("setup", "--namespace", own.namespace).stdout
    assert re.search(r"updated +subject_delete_marker_ttl is 60000000000, must be 0", table)
    assert {stream["did"] for stream in own.json("setup", "tasks:app")["streams"]} == {"unchanged"}


def test_more_replicas_than_servers_are_exit_code_2(own: Cli) -> None:
    assert "replicas" in own("setup", "tasks:app", "--replicas", "3", code=2).stderr


# -- worker ----------------------------------------------------------------------------------------------------------


def test_a_worker_answers_health_ready_and_metrics(own: Cli) -> None:
    with own.worker() as worker:
        own("submit", "tasks:app", "say", "--arg", "text=x", "--wait")
        assert worker.get("/health") == (200, "alive\n")
        assert worker.get("/ready") == (200, "ready\n")
        assert worker.get("/")[0] == 404
        status, text = worker.get("/metrics")
    assert status == 200
    assert re.search(r'tenure_outcomes_total\{actor="say",outcome="succeeded"\} [1-9]', text)
    assert 'tenure_superseded_total{actor="say",where="head"}' in text


async def test_scenario_28_ready_is_false_over_http_while_a_worker_does_not_pull(
    namespace: str, tmp_path: Path
) -> None:
    """celery#8384. The server of a worker process is killed and comes back, five times; it is alive all the while.

    Deaf, ``/ready`` is 503 and says why; a task that comes after the restart is delivered within 5 s, and then it is 200.
    """
    app = App(namespace, config=FAST)

    @app.actor
    async def say(text: str) -> str:
        raise NotImplementedError  # the worker has another

    with EmbeddedServer() as server, contextlib.closing(Cli(tmp_path, server.url, namespace)) as cli:
        async with app.connect(server.url) as client:
            with cli.worker() as worker:

                async def ready(code: int) -> str:
                    got, text = await asyncio.to_thread(worker.get, "/ready")
                    return text if got == code else ""

                for number in range(5):
                    await asyncio.to_thread(server.kill)
                    why = await wait_until(lambda: ready(503), description="deaf, and not ready")
                    assert "ready" not in why
                    assert await asyncio.to_thread(worker.get, "/health") == (200, "alive\n")
                    await asyncio.to_thread(server.start)
                    await wait_until(lambda: client.stores.conn.is_connected, description="the client is back")
                    run = await client.submit(say.call(f"hello {number}"), key=f"k{number}")
                    assert await run.result(5) == f"hello {number}"
                    assert await wait_until(lambda: ready(200), description="ready again") == "ready\n"


def test_a_worker_says_in_words_when_it_is_ready(own: Cli) -> None:
    process = own.start("worker", "tasks:app", "--queue", "default", "--queue", "other", "--concurrency", "3")
    assert re.match(
        r"tenure worker ready: namespace \S+, queues default, other, concurrency 3, pid \d+\n", line_of(process)
    )
    assert end(process) == 0


async def test_sigterm_under_load_drains_and_another_worker_finishes_the_rest(own: Cli) -> None:
    """What runs is finished within the drain, the rest is handed back.

    Each key has one outcome, none needed a second body. A claim that was under way at the signal is handed back without
    one: then the other worker's is the second attempt.
    """
    app = App(own.namespace, config=FAST)

    @app.actor
    async def nap(seconds: float) -> str:
        return "rested"

    async with app.connect(own.url) as client:
        runs = await client.submit_many([(nap.call(0.2), f"n{number}") for number in range(60)])
        with own.worker("--concurrency", "10") as first:

            async def under_way() -> bool:
                status = await client.status("n12")
                return status is not None and status.phase != "queued"

            await wait_until(under_way, description="the worker is in the middle of its load")
            first.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(first.process.wait, 10) == 0
        phases = [status.phase for number in range(60) if (status := await client.status(f"n{number}"))]
        assert set(phases) == {"succeeded", "queued"}
        with own.worker("--concurrency", "30"):
            for run in runs:
                assert not isinstance(run, Exception)
                status = await run.wait(timeout=10)
                steps = [step.what for step in await client.history(run.key)]
                assert (status.phase, status.attempt - steps.count("handed_back")) == ("succeeded", 1)
    bodies = (own.folder / "naps").read_text(encoding="utf-8").split()
    assert sorted(bodies) == sorted(f"n{number}" for number in range(60))


@pytest.mark.long
@pytest.mark.parametrize(
    ("actor", "arguments", "sign", "code"),
    [
        ("stuck", ["--arg", "seconds=30"], "stuck-body", Exit.GIVEN_UP),
        ("hang", ["--arg", "seconds=30"], "hanging-body", Exit.OK),  # the body obeyed; only its helpers hang
        ("stubborn", [], "stubborn-body", Exit.GIVEN_UP),
    ],
    ids=["thread", "every helper thread", "task"],
)
@pytest.mark.parametrize("beside", [[], ["--with-supervisor"]], ids=["alone", "with a supervisor"])
async def test_a_body_that_never_ends_does_not_keep_a_drained_worker(
    own: Cli, actor: str, arguments: list[str], sign: str, code: Exit, beside: list[str]
) -> None:
    """A thread cannot be stopped and a task may swallow its cancellation.

    The run is given up, and so is what keeps it; the exit code says so.
    """
    with own.worker(*beside) as worker:
        own("submit", "tasks:app", actor, "--key", "k", *arguments)
        await wait_until((own.folder / sign).exists, description="the body runs")
        worker.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.process.wait, 10) == code
    assert ("were given up" in (own.folder / "stderr.log").read_text()) is (code is Exit.GIVEN_UP)


@pytest.mark.parametrize("second", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
async def test_a_second_signal_lets_nothing_finish_and_a_body_that_ends_then_is_handed_back(
    own: Cli, second: signal.Signals
) -> None:
    """The first drains, and would wait for the body's 30 s; the second cancels it."""
    log = own.folder / "stderr.log"
    with own.worker(DRAIN="60") as worker:
        own("submit", "tasks:app", "nap", "--key", "k", "--arg", "seconds=30")
        await wait_until(lambda: own.json("show", "k")["phase"] == "running", description="the body runs")
        worker.process.send_signal(signal.SIGINT)
        await wait_until(lambda: "drain.started" in log.read_text(), description="it drains")
        worker.process.send_signal(second)
        assert await asyncio.to_thread(worker.process.wait, 5) == 0
    assert [own.json("show", "k")[name] for name in ("phase", "failures")] == ["queued", 0]


@pytest.mark.parametrize(
    ("actor", "sign"), [("stuck", "stuck-body"), pytest.param("block", "blocking-body", marks=pytest.mark.long)]
)
async def test_a_second_signal_comes_to_an_end_whatever_the_body_does(own: Cli, actor: str, sign: str) -> None:
    """A thread that hears nothing is given up after ``stop_seconds``; so is a body that blocks the event loop."""
    log = own.folder / "stderr.log"
    with own.worker(DRAIN="60") as worker:
        own("submit", "tasks:app", actor, "--arg", "seconds=30")
        await wait_until((own.folder / sign).exists, description="the body runs")
        worker.process.send_signal(signal.SIGINT)
        if actor == "stuck":
            await wait_until(lambda: "drain.started" in log.read_text(), description="it drains")
        else:
            await asyncio.sleep(0.1)  # paused: two signals at once would be one
        worker.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(worker.process.wait, 12) == Exit.GIVEN_UP


async def test_a_third_signal_ends_a_worker_at_once(own: Cli) -> None:
    with own.worker(DRAIN="60") as worker:
        own("submit", "tasks:app", "block", "--arg", "seconds=30")
        await wait_until((own.folder / "blocking-body").exists, description="the body runs")
        for _ in range(3):
            worker.process.send_signal(signal.SIGINT)
            await asyncio.sleep(0.1)  # paused: two signals at once would be one
        assert await asyncio.to_thread(worker.process.wait, 1) == Exit.INTERRUPTED


@pytest.mark.parametrize(
    "seconds",
    [1, pytest.param(2, marks=pytest.mark.long), pytest.param(5, marks=pytest.mark.long)],
    ids=["short", "given", "default"],
)
async def test_a_worker_without_its_server_ends_its_drain_within_bounds_and_says_so(own: Cli, seconds: int) -> None:
    """The server dies, then SIGTERM: trust ends with the ttl, what runs is cancelled; nothing can be handed back."""
    log = own.folder / "stderr.log"
    settings = {1: "session_ttl_seconds=1.0, request_timeout_seconds=0.3, ", 2: "session_ttl_seconds=2.0, ", 5: ""}
    own.module.write_text(own.module.read_text().replace("session_ttl_seconds=2.0, ", settings[seconds]))
    with EmbeddedServer() as server:
        own.url = server.url
        with own.worker(DRAIN="60") as worker:
            own("submit", "tasks:app", "nap", "--key", "k", "--arg", "seconds=30")
            await wait_until(lambda: own.json("show", "k")["phase"] == "running", description="the body runs")
            server.kill()
            worker.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.process.wait, 15) == Exit.UNAVAILABLE
    assert (
        f"the server was not reached while draining: what had not ended is run elsewhere once {seconds} s"
        in log.read_text()
    )


@pytest.mark.long
async def test_a_second_signal_without_a_server_ends_a_worker_and_its_supervisor_in_time(own: Cli) -> None:
    """Both close a session that nobody can store: at the same time, for together they would take longer than is allowed."""
    log = own.folder / "stderr.log"
    source = own.module.read_text()
    own.module.write_text(source.replace("grace=0.2", "grace=30.0").replace("session_ttl_seconds=2.0, ", ""))
    with EmbeddedServer() as server:
        own.url = server.url
        with own.worker("--with-supervisor", DRAIN="60") as worker:
            own("submit", "tasks:app", "stuck", "--arg", "seconds=30")
            await wait_until((own.folder / "stuck-body").exists, description="the body runs")
            server.kill()
            worker.process.send_signal(signal.SIGTERM)
            await wait_until(lambda: "drain.started" in log.read_text(), description="it drains")
            worker.process.send_signal(signal.SIGTERM)
            told_at = time.monotonic()
            assert await asyncio.to_thread(worker.process.wait, 15) == Exit.UNAVAILABLE
            assert time.monotonic() - told_at < 8.0  # 2 s for the body, 4 s for both sessions, and some


async def test_a_worker_that_finds_no_server_at_its_start_is_exit_code_3(own: Cli) -> None:
    own.url = "nats://127.0.0.1:9"
    assert "127.0.0.1:9" in own("worker", "tasks:app", code=Exit.UNAVAILABLE).stderr


# -- dev -------------------------------------------------------------------------------------------------------------


def test_a_worker_that_would_be_killed_before_its_drain_may_end_does_not_start(own: Cli) -> None:
    """Half a second of drain, ten of grace and what the end takes: killed in the middle it would hand nothing back."""
    own.url = "nats://127.0.0.1:9"  # it is compared before there is anything to drain
    _, said = own.fast("worker", "tasks:app", "--killed-after", "18", code=2)
    assert re.search(rf"a drain of '{own.namespace}' may take 19 s .* would be killed after 18 s", said)


async def test_dev_serves_and_works_until_it_is_told_to_stop(own: Cli) -> None:
    process = own.start("dev", "tasks:app", "--port", "0", TENURE_NATS_URL="")
    own.url = re.findall(r"nats://[\d.:]+", line_of(process))[0]
    assert "ready" in line_of(process)
    assert own.json("submit", "tasks:app", "greet", "--arg", "name=Ada", "--wait")["result"]["text"] == "hello Ada"
    process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(process.wait, 15) == 0


@pytest.mark.long
async def test_dev_serves_works_and_reloads(own: Cli) -> None:
    """A broken edit ends the worker; the next edit brings it back with the new code, and the server kept its keys."""
    process = own.start("dev", "tasks:app", "--port", "0", TENURE_NATS_URL="")
    own.url = re.findall(r"nats://[\d.:]+", line_of(process))[0]
    assert "ready" in line_of(process)
    say_hello = ("submit", "tasks:app", "greet", "--arg", "name=Ada", "--wait")
    assert own.json(*say_hello, "--key", "one")["result"]["text"] == "hello Ada"
    source = own.module.read_text(encoding="utf-8")
    own.module.write_text(source + "\nthis is no Python\n", encoding="utf-8")
    assert "tasks.py changed" in line_of(process)
    assert "the worker ended with exit code 2" in line_of(process)
    own.module.write_text(source.replace('word = "hello"', 'word = "good evening"'), encoding="utf-8")
    assert "tasks.py changed" in line_of(process)
    assert "ready" in line_of(process)
    assert own.json(*say_hello, "--key", "two")["result"]["text"] == "good evening Ada"
    assert own.json("show", "one")["phase"] == "succeeded"
    process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(process.wait, 15) == 0


@pytest.mark.long
async def test_nothing_outlives_a_dev_that_was_killed(own: Cli) -> None:
    process = own.start("dev", "tasks:app", "--port", "0", TENURE_NATS_URL="")
    line_of(process)
    assert "ready" in line_of(process)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 2
    process.kill()
    process.wait(5)
    await wait_until(
        lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in family),
        description="worker and server have ended",
    )
