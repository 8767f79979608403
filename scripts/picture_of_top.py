# ruff: noqa: INP001, T201  (a script, not a package; it prints)
"""Make ``deploy/top.svg``: what ``tenure top`` shows of a namespace under load. ``python -m scripts.picture_of_top``.

Real processes on a server of their own: two workers, one for each of two teams, two supervisors, and this one, which submits, replaces
and cancels for as long as it takes to have something of everything. It takes half a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from itertools import count
from pathlib import Path

from rich.console import Console

from tenure import App, Context, Fail, Limit, RateLimit, Retry
from tenure.cli.top import watching
from tenure.cli.top_frame import WIDTH, draw
from tenure.client import Client
from tenure.testing import nats_server

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "deploy" / "top.svg"
WARM_SECONDS, START_SECONDS, HEIGHT, PROCESSES = 15, 240.0, 40, 4
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Whoever looks at it shall ask no other server for them."""
app = App("docs")
_AGAIN = Retry(max_attempts=3, initial=0.2)


@app.actor(queue="text")
async def extract(ctx: Context, number: int) -> int:
    """Ends well, most of the time."""
    await asyncio.sleep(0.05)
    if number % 25 == 0 and ctx.attempt == 1:
        raise ConnectionError("the store did not answer")
    return number


@app.actor(queue="text", priority="high")
async def preview(number: int) -> int:
    """Somebody waits for it."""
    await asyncio.sleep(0.02)
    return number


@app.actor(queue="text", priority="low")
async def index(text: str) -> str:
    """Takes its time, and is often replaced meanwhile."""
    await asyncio.sleep(3.0)
    return text


@app.actor(queue="web", limits=[Limit(2, per="site")], retry=_AGAIN)
async def fetch(site: str, number: int) -> int:
    """Two at once from each site; one site is down."""
    await asyncio.sleep(0.8)
    if site == "down.example":
        raise Fail("502")
    return number


@app.actor(queue="mail", limits=[RateLimit(2, timedelta(seconds=1))])
async def send(number: int) -> int:
    """No more than two a second."""
    return number


@app.actor(queue="web")
async def report(number: int) -> int:
    """Paused."""
    return number


@app.actor(queue="archive")
async def shelve(number: int) -> int:
    """Of a queue that nobody works on."""
    return number


async def _load(client: Client) -> None:
    """Until it is cancelled."""
    chance = random.Random(7)
    for number in count():
        await client.submit_many([(extract.call(number * 10 + i), f"extract-{number}-{i}") for i in range(8)])
        await client.submit(preview.call(number), key=f"preview-{number}")
        await client.replace(index.call(f"version {number}"), key=f"index-{number % 3}")
        site = chance.choice(("busy.example", "busy.example", "busy.example", "down.example"))
        await client.submit_many([(fetch.call(site, i), f"fetch-{number}-{i}") for i in range(2)])
        await client.submit_many([(send.call(i), f"send-{number}-{i}") for i in range(3)])
        if number % 5 == 0:
            await client.submit(report.call(number), key=f"report-{number}")
            await client.submit(shelve.call(number), key=f"shelve-{number}")
            await client.cancel(f"index-{chance.randrange(3)}", reason="not wanted any more")
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def _processes(url: str) -> Iterator[None]:
    target = "scripts.picture_of_top:app"
    worker, supervisor = ["worker", target, "--concurrency", "20"], ["supervisor", target]
    commands = [
        [*worker, "--queue", "text"],
        [*worker, "--queue", "text", "--queue", "web", "--queue", "mail"],
        supervisor,
        supervisor,
    ]
    environment = os.environ | {"TENURE_NATS_URL": url, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with tempfile.TemporaryFile() as log:
        started = [
            subprocess.Popen([sys.executable, "-m", "tenure.cli", *command], env=environment, stdout=log, stderr=log)  # noqa: S603  (our own commands)
            for command in commands
        ]
        try:
            yield
        finally:
            for process in started:
                process.kill()
                process.wait()


async def _picture(url: str) -> str:
    async with app.connect(url) as client, watching(client, url) as scene:
        await client.pause(actor="report", reason="a new template")
        async with asyncio.timeout(START_SECONDS):
            while len(scene.sessions) < PROCESSES:  # noqa: ASYNC110  (who lives is told by a watch, not by an event)
                await asyncio.sleep(0.1)
        load = asyncio.create_task(_load(client))
        try:
            console = Console(record=True, width=WIDTH, height=HEIGHT, file=StringIO(), force_terminal=True)
            for _ in range(WARM_SECONDS):
                await asyncio.sleep(1.0)
                frame = await scene.frame(keep_on=False)
        finally:
            load.cancel()
        console.print(draw(frame, HEIGHT))
        return _FONTS.sub("", console.export_svg(title="tenure top --namespace docs"))


def main() -> None:
    """Start all of it, and store the picture."""
    with nats_server() as url, _processes(url):
        PICTURE.write_text(asyncio.run(_picture(url)), encoding="utf-8")
    print(f"{PICTURE}: {PICTURE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
