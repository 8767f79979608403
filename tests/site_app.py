"""The app of the processes that tests kill and freeze. Its bodies write down what happens to them, and wait at files."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tenure import App, Config, Context, Cooldown, Debounce, Limit, Outcome, RateLimit, Retry
from tenure.clock import SystemClock
from tests import looks
from tests.support import FAST

SETTINGS = "SITE_CONFIG"
AHEAD = "SITE_CLOCK_AHEAD"
"""How many seconds the time of day of a process is wrong."""
QUICK = replace(FAST, ack_wait_seconds=30.0, request_timeout_seconds=0.5, sweep_seconds=0.3)
"""``ack_wait`` is long: a redelivery must not be what helps."""


if _ahead := float(os.environ.get(AHEAD, "0")):
    SystemClock.now = staticmethod(lambda: time.time() + _ahead)  # before anything asks


def make(namespace: str, folder: Path, **settings: Any) -> App:
    """The app, as every process and the test itself have it."""
    app = App(namespace, config=replace(QUICK, **settings))
    site = _Folder(folder)
    _add_patient(app, site)
    _add_quick(app, site)
    _add_failing(app, site)
    _add_blocking(app, site)
    _add_limited(app, site)
    for n in (1, 2, 5):
        _add_bounded(app, site, n)
    _add_paced(app, site)
    return app


def make_old(namespace: str, folder: Path, **settings: Any) -> App:
    """The app as an earlier release had it: it knows none of these actors."""
    app = App(namespace, config=replace(QUICK, **settings))
    site = _Folder(folder)

    @app.actor
    async def older(ctx: Context) -> None:
        site.note(ctx, "started")

    return app


def make_beating(namespace: str, folder: Path, **settings: Any) -> App:
    """An app with a schedule that starts by itself, each second."""
    app = App(namespace, config=replace(QUICK, **settings))
    site = _Folder(folder)

    @app.actor(cron="* * * * * *", autostart=True)
    async def beat(ctx: Context) -> None:
        site.note(ctx, "tick")

    return app


class _Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, ctx: Context, what: str, at: float = 0.0) -> None:
        with (self._folder / "events").open("a", encoding="utf-8") as file:
            file.write(
                f"{at or time.time()} {what} {ctx.key} {ctx.generation} {ctx.attempt} {ctx.failures} {os.getpid()}\n"
            )

    async def gate(self, ctx: Context) -> None:
        while not self._is_open(ctx):  # noqa: ASYNC110  (another process opens it)
            await asyncio.sleep(0.02)  # body:

    def block(self, ctx: Context) -> None:
        """Wait for the gate as an async body must not: nothing else of its loop goes on."""
        while not self._is_open(ctx):
            time.sleep(0.02)  # body:

    def _is_open(self, ctx: Context) -> bool:
        names = (ctx.key, f"{ctx.key}-{ctx.attempt}")
        return any((self._folder / f"open-{name}").exists() for name in names)


def _add_patient(app: App, site: _Folder) -> None:
    @app.actor(retry=Retry(max_attempts=3, initial=0.05), grace=2.0)
    async def hold(ctx: Context) -> str:
        site.note(ctx, "started")
        try:
            await site.gate(ctx)
        except asyncio.CancelledError:
            site.note(ctx, f"stopped:{ctx.stop_reason}")
            raise
        site.note(ctx, "ended")
        return f"attempt {ctx.attempt}"

    @app.actor(grace=60.0)
    async def listens(ctx: Context) -> None:
        site.note(ctx, "started")
        try:
            await site.gate(ctx)
        except asyncio.CancelledError:
            site.note(ctx, f"stopped:{ctx.stop_reason}")
            raise

    @app.actor(name="once", retry=None)
    async def once(ctx: Context) -> str:
        site.note(ctx, "started")
        await site.gate(ctx)
        return f"attempt {ctx.attempt}"

    @app.actor(name="deaf", grace=60.0)
    async def deaf(ctx: Context) -> None:
        site.note(ctx, "started")
        while True:
            try:
                await asyncio.sleep(60)  # body:
            except asyncio.CancelledError:
                site.note(ctx, f"told:{ctx.stop_reason}")

    @app.actor(name="lingers", timeout=0.5, grace=60.0)
    async def lingers(ctx: Context) -> str:
        site.note(ctx, "started")
        while ctx.attempt == 1:
            try:
                await asyncio.sleep(60)  # body:
            except asyncio.CancelledError:
                site.note(ctx, f"told:{ctx.stop_reason}")
        return f"attempt {ctx.attempt}"


def _add_quick(app: App, site: _Folder) -> None:
    @app.actor
    async def quick(ctx: Context) -> str:
        site.note(ctx, "started")
        return f"attempt {ctx.attempt}"

    @app.actor
    async def spawns(ctx: Context) -> str:
        site.note(ctx, "started")
        ctx.spawn(quick.call(), key=f"{ctx.key}-child")
        return "spawned"

    @app.actor(result_ttl=1.0)
    async def brief(ctx: Context) -> str:
        site.note(ctx, "started")
        return f"attempt {ctx.attempt}"

    @app.actor(result_ttl=1.0)
    async def briefly_spawns(ctx: Context) -> str:
        site.note(ctx, "started")
        ctx.spawn(brief.call(), key=f"{ctx.key}-child")
        return "spawned"

    @app.actor
    async def hears(ctx: Context, it: Outcome) -> str:
        site.note(ctx, f"heard:{it.phase}")
        return f"attempt {ctx.attempt}"

    @app.actor(retry=None, on_success=hears, on_failure=hears, on_cancel=hears)
    async def hooked(ctx: Context, fails: bool = False) -> str:
        site.note(ctx, "started")
        if fails:
            raise RuntimeError
        return "done"

    @app.actor
    async def chains(ctx: Context, delay: float) -> str:
        site.note(ctx, "started")
        if ctx.generation == 1:
            ctx.reschedule(delay=delay)
        return f"generation {ctx.generation}"

    @app.actor(every=0.5)
    async def ticks(ctx: Context) -> None:
        site.note(ctx, "started")


def _add_failing(app: App, site: _Folder) -> None:
    @app.actor(retry=None)
    async def fails(ctx: Context) -> None:
        site.note(ctx, "started")
        raise RuntimeError

    @app.actor(retry=Retry(max_attempts=2, initial=3.0, jitter=0.0))
    async def fails_once(ctx: Context) -> str:
        site.note(ctx, "started")
        if ctx.attempt == 1:
            raise RuntimeError
        return f"attempt {ctx.attempt}"

    @app.actor(retry=Retry(max_attempts=3, initial=0.05))
    async def exits(ctx: Context) -> None:
        site.note(ctx, "started")
        os._exit(1)


def _add_blocking(app: App, site: _Folder) -> None:
    @app.actor(grace=0.3)
    async def blocks(ctx: Context) -> str:
        site.note(ctx, "started")
        await asyncio.sleep(0.1)  # body: by now its worker has pulled for its other slots
        site.note(ctx, "blocked")
        site.block(ctx)
        site.note(ctx, "ended")
        return f"attempt {ctx.attempt}"

    @app.actor
    async def sleeps(ctx: Context, seconds: float) -> str:
        site.note(ctx, "started")
        time.sleep(seconds)  # noqa: ASYNC251  # body: it is what an async one must not do
        return f"attempt {ctx.attempt}"

    @app.actor
    async def busy(ctx: Context, seconds: float) -> str:
        site.note(ctx, "started")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        return f"attempt {ctx.attempt}"

    @app.actor(timeout=0.5, grace=0.3)
    async def overruns(ctx: Context) -> str:
        site.note(ctx, "started")
        if ctx.attempt == 1:
            await asyncio.sleep(0.1)  # body: by now its worker has pulled for its other slots
            site.note(ctx, "blocked")
            site.block(ctx)
        site.note(ctx, "ended")
        return f"attempt {ctx.attempt}"


def _add_bounded(app: App, site: _Folder, n: int) -> None:
    @app.actor(name=f"bounded_{n}", limits=[Limit(n)])
    async def bounded(ctx: Context, seconds: float) -> None:
        site.note(ctx, "started")
        await asyncio.sleep(seconds)  # body:
        site.note(ctx, "ended")


def _add_limited(app: App, site: _Folder) -> None:
    @app.actor(limits=[Limit(2)], retry=Retry(max_attempts=3, initial=0.05), grace=2.0)
    async def limited(ctx: Context) -> str:
        site.note(ctx, "started")
        await site.gate(ctx)
        site.note(ctx, "ended")
        return f"attempt {ctx.attempt}"


def _add_paced(app: App, site: _Folder) -> None:
    @app.actor(limits=[RateLimit(3, 1.0)], retry=Retry(max_attempts=3, initial=0.05))
    async def paced(ctx: Context) -> str:
        site.note(ctx, "started", looks.started())
        return f"attempt {ctx.attempt}"

    @app.actor(limits=[RateLimit(1, 8.0)])
    async def paced_slowly(ctx: Context) -> None:
        site.note(ctx, "started")

    @app.actor(limits=[Debounce(1.0, 4.0)])
    async def settles(ctx: Context, number: int) -> int:
        site.note(ctx, f"started:{number}")
        return number

    @app.actor(limits=[Cooldown(4.0)])
    async def cools(ctx: Context) -> str:
        site.note(ctx, "started")
        return f"generation {ctx.generation}"


def settings_of(environment: str) -> dict[str, Any]:
    """What a test asked its processes for."""
    chosen: dict[str, Any] = json.loads(environment)
    unknown = chosen.keys() - set(Config.__struct_fields__)
    assert not unknown, unknown
    return chosen


_OWN = (os.environ.get("TENURE_NAMESPACE", "nobody"), Path.cwd())
_SETTINGS = settings_of(os.environ.get(SETTINGS, "{}"))
app = make(*_OWN, **_SETTINGS)
old = make_old(*_OWN, **_SETTINGS)
beating = make_beating(*_OWN, **_SETTINGS)
