"""Prometheus scrapes real processes under load, and every panel of the dashboard and every rule has something to show."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.monitoring.__main__ import DEPLOY, RULES
from scripts.monitoring.panels import ROWS
from scripts.monitoring.rules import ALERTS, RECORDINGS
from tenure import App, Client
from tenure.health import HealthServer
from tests.e2e.commands import Cli, Worker, line_of
from tests.prometheus import find, needs
from tests.support import FAST, wait_until

CONFIG = """
global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs:
  - {{job_name: tenure-worker, static_configs: [{{targets: [{workers}]}}]}}
  - {{job_name: tenure-supervisor, static_configs: [{{targets: [{supervisor}]}}]}}
  - {{job_name: tenure-producer, static_configs: [{{targets: ["{producer}"]}}]}}
"""


class Prometheus:
    """A real one, on a free port."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, **query: str) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]

    def numbers(self, expr: str) -> list[float]:
        """Of every series that the expression has now, but those that say "no number"."""
        values = [float(series["value"][1]) for series in self.get("query", query=expr)["result"]]
        return [value for value in values if value == value]  # noqa: PLR0124  (NaN is not itself)


@contextlib.contextmanager
def prometheus(folder: Path, **targets: str) -> Iterator[Prometheus]:
    program = find("prometheus")
    assert program is not None
    shutil.copy(DEPLOY / RULES, folder)
    (folder / "prometheus.yml").write_text(CONFIG.format(rules=RULES, **targets), encoding="utf-8")
    with (
        (folder / "prometheus.log").open("wb") as log,
        subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stderr=log,
            stdout=log,
        ) as process,
    ):
        try:
            yield Prometheus(_listening(process, folder / "prometheus.log"))
        finally:
            process.terminate()


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it says that it listens."""
    while process.poll() is None:
        found = re.search(r'msg="Listening on" address=(\S+)[\s\S]*ready to receive', log.read_text(encoding="utf-8"))
        if found:
            return found[1]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    raise AssertionError(log.read_text(encoding="utf-8"))


def _asked(expr: str) -> str:
    """As Grafana asks it with all actors and queues chosen."""
    return expr.replace("$__rate_interval", "1m").replace("$actor", ".*").replace("$queue", ".*")


def _address(process: Worker) -> str:
    return str(process.said["metrics"]).removeprefix("http://")


async def greet(name: str) -> dict[str, str | int]:
    return {}


async def fail(why: str) -> None: ...


async def nap(seconds: float) -> str:
    return ""


class Producer:
    """The actors that the workers have, as a producer needs them: names and signatures."""

    def __init__(self, namespace: str) -> None:
        self.app = App(namespace, config=FAST)
        self.greet = self.app.actor(retry=None)(greet)
        self.fail = self.app.actor(retry=None)(fail)
        self.nap = self.app.actor(nap)  # may be tried again: its first worker is frozen


async def _load(producer: Producer, client: Client, started: asyncio.Event) -> None:
    """Runs that succeed, fail, start late, are superseded in their bodies and cancelled, until it is cancelled."""
    round_ = 0
    while True:
        round_ += 1
        await client.submit_many([(producer.greet.call(f"{n}"), None) for n in range(5)])
        await client.submit(producer.greet.call("late"), delay=0.3)
        await client.submit(producer.fail.call("on purpose"))
        await client.replace(producer.nap.call(5.0), key="replaced")
        await client.submit(producer.nap.call(5.0), key=f"cancelled-{round_}")
        await asyncio.sleep(0.3)  # work: what is replaced and cancelled next runs by now
        await client.cancel(f"cancelled-{round_}")
        started.set()


async def _freeze(producer: Producer, client: Client, frozen: Worker, other: Worker) -> None:
    """A worker stands still in a body for longer than its session lives, and goes on when another has its run."""
    other.process.send_signal(signal.SIGSTOP)
    try:
        run = await client.submit(producer.nap.call(1.0), key="frozen")

        async def attempt(number: int) -> bool:
            status = await run.status()
            return status is not None and status.phase in {"running", "succeeded"} and status.attempt == number

        await wait_until(lambda: attempt(1), description="the first worker runs it")
        frozen.process.send_signal(signal.SIGSTOP)
    finally:
        other.process.send_signal(signal.SIGCONT)
    try:
        await wait_until(lambda: attempt(2), description="the other has taken it over", timeout=20)
    finally:
        frozen.process.send_signal(signal.SIGCONT)


@needs("prometheus")
@pytest.mark.timeout(120, method="thread")  # four processes start, one loses its session, and rates need some scrapes
async def test_every_panel_and_every_rule_has_an_answer_under_load(own: Cli, tmp_path: Path) -> None:
    """Two workers, a supervisor and a producer; one worker is frozen in mid-run, so that the other takes its run over."""
    producer = Producer(own.namespace)
    async with producer.app.connect(own.url) as client:
        with contextlib.ExitStack() as ends:
            workers = [ends.enter_context(own.worker()) for _ in range(2)]
            process = own.start("supervisor", "tasks:app", "--metrics-port", "0", "--log-json")
            supervisor = Worker(process, line_of(process))
            shown = HealthServer(client.metrics.registry, str, host="127.0.0.1", port=0)
            shown.start()
            ends.callback(shown.close)
            watching = ends.enter_context(
                prometheus(
                    tmp_path,
                    workers=", ".join(f'"{_address(worker)}"' for worker in workers),
                    supervisor=f'"{_address(supervisor)}"',
                    producer=f"127.0.0.1:{shown.port}",
                )
            )

            async def all_scraped() -> bool:
                return await asyncio.to_thread(watching.numbers, "up") == [1.0] * 4

            await wait_until(all_scraped, description="all are scraped, so that what happens next makes a difference")
            await _freeze(producer, client, *workers)
            begun = asyncio.Event()
            load = asyncio.create_task(_load(producer, client, begun))
            try:
                await wait_until(lambda: begun.is_set() or load.done(), description="there is load")
                await _see_all(watching)
            finally:
                load.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await load


async def _see_all(watching: Prometheus) -> None:
    async def numbers(expr: str) -> list[float]:
        return await asyncio.to_thread(watching.numbers, expr)

    wanted = {
        f"{panel.title}: {legend}": _asked(expr)
        for row in ROWS.values()
        for panel in row
        for expr, legend in panel.queries
    }
    wanted |= {recording.name: recording.name for recording in RECORDINGS}
    for what, expr in wanted.items():

        async def answered(expr: str = expr) -> bool:
            return bool(await numbers(expr))

        await wait_until(answered, description=f"{what}: {expr}", timeout=15)
    for metric in ("superseded", "cancelled", "takeovers", "outcomes", "client_calls", "repairs"):

        async def counted(metric: str = metric) -> bool:
            return sum(await numbers(f"sum(rate(tenure_{metric}_total[1m]))")) > 0

        await wait_until(counted, description=f"{metric} are counted", timeout=15)
    assert await numbers('tenure_superseded_total{actor="nap", where="tail"} > 0')
    groups = (await asyncio.to_thread(watching.get, "rules"))["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert rules.keys() == {one.name for one in (*RECORDINGS, *ALERTS)}
    assert [(name, rule.get("lastError")) for name, rule in rules.items() if rule["health"] != "ok"] == []
    assert rules["TenureNoSupervisor"]["state"] == "inactive"
    up = await numbers('up{job=~"tenure-.*"}')
    assert up == [1.0] * 4, "two workers, a supervisor, a producer"
