"""What goes in as an argument, comes out as a result or stands in a URL is in nothing that processes and commands say."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import nats
import pytest

from tenure import App, RunCancelled, RunFailed
from tests.e2e.commands import Cli, Worker, end, line_of
from tests.strangers import Stranger, phase, rejected

MARKER, PASSWORD = "marker7f3a", "pass9c1e"
TASKS = """
from enum import Enum
from pathlib import Path

from tenure import App, Config, Context, Fail, Limit, Retry
import asyncio

app = App(
    "{namespace}",
    config=Config(
        session_ttl_seconds=2.0, ack_wait_seconds=4.0, connect_timeout_seconds=1.0, command_patience_seconds=0.1
    ),
)


class Colour(Enum):
    RED = "red"


@app.actor(limits=[Limit(2, per="word")])
async def echo(ctx: Context, word: str) -> str:
    await ctx.progress(1, 2, word)
    return word


@app.actor(retry=Retry(max_attempts=2, initial=0.01))
async def fails(word: str) -> None:
    raise ValueError(word)


@app.actor(isolation="process", retry=None)
def fails_apart(word: str) -> None:
    raise ValueError(word)


@app.actor(retry=None)
async def cannot_be_stored(word: str) -> object:
    class Odd:
        def __repr__(self) -> str:
            return word

    return Odd()


@app.actor(timeout=0.2, retry=Retry(max_attempts=2, initial=0.01))
async def hangs(word: str) -> None:
    await asyncio.Event().wait()


@app.actor(timeout=0.2, grace=0.2, retry=None)
async def deaf(word: str) -> None:
    while not Path("open").exists():
        try:
            await asyncio.sleep(0.02)  # body:
        except asyncio.CancelledError:
            pass


@app.actor
async def holds(word: str) -> None:
    await asyncio.Event().wait()


@app.actor
async def paints(colour: Colour, word: str = "") -> None: ...
"""


@pytest.fixture
def own(nats_server: str, namespace: str, tmp_path: Path) -> Iterator[Cli]:
    """The commands, with a password in their server's URL: a server without users lets everybody in."""
    cli = Cli(tmp_path, f"nats://user:{PASSWORD}@{urlsplit(nats_server).netloc}", namespace)
    cli.module.write_text(TASKS.replace("{namespace}", namespace), encoding="utf-8")
    yield cli
    cli.close()


@pytest.fixture
def app(own: Cli, monkeypatch: pytest.MonkeyPatch) -> App:
    """The worker's own code."""
    monkeypatch.syspath_prepend(str(own.folder))
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    app: App = importlib.import_module("tasks").app
    return app


async def test_no_argument_result_or_password_is_in_what_a_worker_says(own: Cli, app: App, namespace: str) -> None:
    """Runs that succeed, fail, time out, are cancelled, replaced, get stuck, cannot be stored; commands that are refused."""
    arguments = ("--with-supervisor", "--log-level", "debug", "--metrics-port", "0")
    process = own.start("worker", "tasks:app", *arguments, "--log-json")
    worker = Worker(process, line_of(process))
    calls = {name: actor.call(word=MARKER) for name, actor in app.actors.items() if name != "paints"}
    async with app.connect(own.url) as client:
        runs = {name: await client.submit(call, key=name) for name, call in calls.items()}
        assert await runs["echo"].result(timeout=30) == MARKER
        for name in ("replaced", "cancelled"):
            await client.submit(calls["holds"], key=name)
            await phase(client, name, "running")
        await client.replace(calls["echo"], key="replaced")
        assert (await client.cancel("cancelled", reason="enough")).outcome == "stopping"
        with pytest.raises(RunCancelled):
            await client.run("cancelled").result(timeout=30)
        for name in ("fails", "fails_apart", "cannot_be_stored", "hangs", "deaf"):
            with pytest.raises(RunFailed) as failed:
                await runs[name].result(timeout=30)
            assert (MARKER in str(failed.value)) == name.startswith("fails")  # its author's own words, for who asks
        stranger = Stranger(await nats.connect(own.url), namespace)
        await stranger.send("submit.paints", {"colour": MARKER})
        await stranger.send("submit.echo", {"word": MARKER}, Tenure_Delay=MARKER)
        await stranger.send("submit.echo", {MARKER: 1})
        await stranger.raw("submit.echo", MARKER.encode())
        assert len(await rejected(client, 4)) == 4
        await stranger.client.close()
        shown = "".join(worker.get(path)[1] for path in ("/metrics", "/health", "/ready"))
        await client.cancel("holds")
    (own.folder / "open").touch()
    end(process)
    said = (own.folder / "stderr.log").read_text(encoding="utf-8")
    events = {json.loads(line)["event"] for line in said.splitlines() if line.startswith("{")}
    assert events > {"attempt.failed", "run.ended", "run.stuck", "run.superseded", "command.rejected"}
    assert [secret for secret in (MARKER, PASSWORD) if secret in said + shown] == []


def test_no_argument_or_password_is_in_what_commands_complain_of(own: Cli) -> None:
    wrong = f"nats://user:{PASSWORD}@127.0.0.1"
    submit = ("submit", "tasks:app", "paints", "--arg", f"word={MARKER}", "--arg")
    for code, arguments in (
        (2, (*submit, f"colour={MARKER}")),
        (2, (*submit, MARKER)),
        (2, ("submit", "tasks:app", "paints", "--args", f'{{"colour": "{MARKER}"')),
        (3, (*submit, "colour=red", "--url", f"{wrong}:9")),
        (2, (*submit, "colour=red", "--url", f"{wrong}:no")),
        (2, (*submit, "colour=red", "--url", f"nats://user:/@,{PASSWORD}@127.0.0.1:0")),
        (2, (*submit, "colour=red", "--url", f"http://user:{PASSWORD}@127.0.0.1")),
        (2, ("ls", "--namespace", "nowhere")),
    ):
        out, err = own.fast(*arguments, code=code)
        assert err, arguments
        assert [secret for secret in (MARKER, PASSWORD) if secret in out + err] == [], (arguments, out, err)
