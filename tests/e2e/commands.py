"""Runs the real commands as processes, in a folder with an app of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.cli.root import run
from tests import forks

ROOT = Path(__file__).resolve().parents[2]
TASKS = """
import asyncio
import os
import time
from datetime import datetime, timedelta
from pathlib import Path

from tenure import App, Config, Context, Fail, Limit, RateLimit

app = App(
    "{namespace}",
    config=Config(
        session_ttl_seconds=2.0, ack_wait_seconds=4.0, drain_seconds=float(os.environ.get("DRAIN", "{drain}")),
        connect_timeout_seconds=1.0, patience_seconds=2.0,
    ),
)
word = "hello"
not_an_app = 17


@app.actor(retry=None)
async def greet(name: str, times: int = 1, at: datetime | None = None) -> dict[str, str | int]:
    return {{"text": " ".join([f"{{word}} {{name}}"] * times), "year": at.year if at else 0}}


@app.actor(retry=None)
async def say(text: str) -> str:
    return text


@app.actor(cron="30 4 1 1 *", tz="Europe/Berlin")
async def yearly() -> str:
    return "a year"


@app.actor(retry=None)
async def fail(why: str) -> None:
    raise Fail(why)


@app.actor(retry=None)
async def nap(ctx: Context, seconds: float) -> str:
    with Path("naps").open("a", encoding="utf-8") as naps:
        naps.write(f"{{ctx.key}}\\n")
    await ctx.progress(1, 2, "asleep")
    await asyncio.sleep(seconds)  # body:
    return "rested"


@app.actor(limits=[Limit(1, per="site"), Limit(3)], retry=None)
async def fetch(site: str, seconds: float = 60.0) -> None:
    await asyncio.sleep(seconds)  # body:


@app.actor(limits=[RateLimit(2, timedelta(hours=1), per="to")], retry=None)
async def mail(to: str) -> None:
    pass


@app.actor(grace=0.2, retry=None)
def stuck(seconds: float) -> str:
    Path("stuck-body").touch()
    time.sleep(seconds)  # body:
    return "at last"


@app.actor(grace=0.2, retry=None)
async def hang(seconds: float) -> None:
    Path("hanging-body").touch()
    await asyncio.gather(*(asyncio.to_thread(time.sleep, seconds) for _ in range(50)))


@app.actor(grace=0.2, retry=None)
async def stubborn() -> None:
    Path("stubborn-body").touch()
    while True:
        try:
            await asyncio.sleep(1)  # body:
        except asyncio.CancelledError:
            pass


@app.actor(grace=0.2, retry=None)
async def block(seconds: float) -> None:
    Path("blocking-body").touch()
    time.sleep(seconds)  # body:
"""


class Cli:
    """``cli("submit", ...)`` runs a command to its end; ``start`` leaves it running."""

    def __init__(self, folder: Path, url: str, namespace: str, *, drain: float = 5.0) -> None:
        self.folder = folder
        self.url = url
        self.namespace = namespace
        self.module = folder / "tasks.py"
        self.module.write_text(TASKS.format(namespace=namespace, drain=drain), encoding="utf-8")
        self._started: list[subprocess.Popen[str]] = []

    def environment(self) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "TENURE_NATS_URL": self.url,
            "TENURE_NAMESPACE": self.namespace,
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_COLOR": "1",
        }

    def __call__(self, *arguments: str, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = forks.run([*arguments], folder=cwd or self.folder, environment=self.environment())
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def fast(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """The same command without the second that a process costs: what it printed and what it complained of."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.chdir(self.folder)
            patch.syspath_prepend(str(self.folder))
            patch.delitem(sys.modules, "tasks", raising=False)  # that of another folder would be another namespace's
            for name, value in self.environment().items():
                patch.setenv(name, value)
            got = run(list(arguments))
        assert got == code, (arguments, got, out.getvalue(), err.getvalue())
        return out.getvalue(), err.getvalue()

    def fast_json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.fast(*arguments, "--json", code=code)[0])

    def start(self, *arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        with (self.folder / "stderr.log").open("ab") as log:
            process = forks.Command(
                [sys.executable, "-m", "tenure.cli", *arguments],
                cwd=cwd or self.folder,
                env=self.environment() | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    @contextlib.contextmanager
    def worker(self, *arguments: str, **environment: Any) -> Iterator[Worker]:
        process = self.start("worker", "tasks:app", "--metrics-port", "0", "--log-json", *arguments, **environment)
        try:
            yield Worker(process, line_of(process))
        finally:
            end(process)

    def close(self) -> None:
        for process in self._started:
            end(process)


class Worker:
    """A worker process that pulls."""

    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        self.process = process
        self.said = json.loads(line)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.said["metrics"] + path, timeout=5) as answer:  # noqa: S310  (an http address)
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a command prints; fails if it ends instead."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the command ended with {process.wait(10)}"
    return line


def end(process: subprocess.Popen[str]) -> int:
    """End a command, kindly, then not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
    if process.stdout is not None:
        process.stdout.close()
    return process.returncode
