"""An app of actors that run in child processes; its namespace comes from the environment, as the children need it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tenure
from tenure import App, Context, Fail, Retry, Snooze, Stopped
from tests.support import FAST

app = App(os.environ.get("TENURE_TEST_NAMESPACE", "unset"), config=FAST)
imported_in = os.getpid()


def mark(path: str, text: str = "") -> None:
    """One line in a file that the test watches."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


@app.actor(isolation="process", retry=None)
async def about(ctx: Context) -> dict[str, Any]:
    """What the context says, and where it says it."""
    assert tenure.current() is ctx
    ctx.check()
    return {
        "pid": os.getpid(),
        "key": ctx.key,
        "generation": ctx.generation,
        "attempt": ctx.attempt,
        "failures": ctx.failures,
        "fence": ctx.fence,
        "deadline": ctx.deadline is not None,
        "stopping": ctx.stopping.is_set(),
        "reason": ctx.stop_reason,
        "threads": sorted(thread.name.split("-")[0] for thread in threading.enumerate()),
        "app": ctx.app is app,
    }


@app.actor(isolation="process", retry=None)
def double(ctx: Context, number: int) -> tuple[int, int]:
    assert tenure.current() is ctx
    return 2 * number, os.getpid()


@app.actor(isolation="process", retry=None)
async def echo(data: bytes, times: int = 1) -> bytes:
    return data * times


@app.actor(isolation="process", retry=Retry(max_attempts=3, initial=0.01))
def dies(ctx: Context, how: str, path: str) -> str:
    mark(path, f"{ctx.attempt} {ctx.failures}")
    if how == "exit":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit once" and ctx.attempt == 1:
        os._exit(1)
    return f"attempt {ctx.attempt}"


@app.actor(isolation="process", retry=Retry(max_attempts=2, initial=0.01))
async def ends(ctx: Context, how: str) -> Any:
    match how:
        case "fail":
            raise Fail("no use")
        case "raise":
            raise KeyError("lost")
        case "stopped":
            raise Stopped("says who")
        case "snooze" if ctx.attempt == 1:
            raise Snooze(0.01)
        case "lock":
            return threading.Lock()
        case "exit":
            sys.exit(3)
        case "stop":
            raise StopAsyncIteration
        case "interrupt":
            raise KeyboardInterrupt
        case "close":
            raise GeneratorExit
    return [ctx.attempt, ctx.failures]


@app.actor(isolation="process", retry=None)
def puts_off(ctx: Context) -> None:
    ctx.reschedule(delay=60.0)


@app.actor(isolation="process", retry=None)
async def tells(ctx: Context) -> None:
    await ctx.progress(3, 10, "third")
    ctx.log.warning("body.spoke", word="hello")
    ctx.spawn(double.call(21), key="spawned")
    ctx.reschedule(delay=60.0, call=echo.call(b"next"))
    print("printed by a body")
    await ctx.stopping.wait()


@app.actor(isolation="process", grace=5.0, timeout=20.0, retry=None)
async def sleeps(ctx: Context, path: str) -> None:
    mark(path, "start")
    try:
        await asyncio.sleep(30)  # body: until it is cancelled
    except asyncio.CancelledError:
        mark(path, f"cancelled {ctx.stop_reason}")
        raise


@app.actor(isolation="process", grace=5.0, retry=None)
def checks(ctx: Context, path: str) -> None:
    mark(path, "start")
    try:
        while True:
            time.sleep(0.005)  # body: works
            ctx.check()
    except Stopped as stopped:
        mark(path, f"stopped {stopped.reason}")
        raise


@app.actor(isolation="process", grace=0.2, retry=None)
def deaf(path: str, seconds: float = 30.0) -> str:
    mark(path, f"start {os.getpid()}")
    time.sleep(seconds)  # body: hears nothing
    mark(path, "end")
    return "slept"


@app.actor(isolation="process", grace=0.2, timeout=0.3, retry=Retry(max_attempts=2, initial=0.01))
def overstays(ctx: Context, path: str) -> str:
    mark(path, f"start {ctx.attempt}")
    if ctx.attempt == 1:
        time.sleep(30)  # body: hears nothing
    return f"attempt {ctx.attempt}"


@app.actor(isolation="process", grace=0.2, retry=None)
async def swallows(path: str) -> None:
    mark(path, f"start {os.getpid()}")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)  # body: ignores its cancellation


@app.actor(isolation="process", grace=0.2, retry=None)
def breeds(path: str) -> None:
    """A body with a process of its own, which must not outlive it."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])  # body: its child
    mark(path, f"start {os.getpid()} {sleeper.pid}")
    sleeper.wait()


@app.actor(isolation="process", retry=None)
def waits(path: str) -> None:
    mark(path, "start")
    while not Path(f"{path}.open").exists():
        time.sleep(0.01)  # body: waits at its gate


@app.actor(isolation="process", retry=None)
def goes_on(ctx: Context, path: str) -> int:
    """Checks until its gate is open; says when it knows that it is to stop."""
    ctx.report(3, 10, "on its way")
    mark(path, "start")
    told = None
    while not Path(f"{path}.open").exists():
        known = ctx.stop_reason
        ctx.check()
        if known != told:
            mark(path, f"went on {known}")
        told = known
        time.sleep(0.005)  # body: works
    return ctx.attempt


@app.actor(isolation="process", retry=None)
def naps(seconds: float) -> None:
    time.sleep(seconds)  # body: holds its child


@app.actor(isolation="process", retry=None)
def forks(ctx: Context) -> str:
    copy = os.fork()
    if not copy:
        ctx.log.warning("copy.spoke")
        os._exit(0)
    os.waitpid(copy, 0)
    return "forked"


@app.actor(isolation="process", retry=None)
def once(ctx: Context, path: str) -> int:
    mark(path, str(ctx.attempt))
    return ctx.attempt


@app.actor(isolation="process", timeout=0.5, retry=Retry(max_attempts=2, initial=0.01))
def hasty(ctx: Context, path: str) -> int:
    mark(path, str(ctx.attempt))
    return ctx.attempt


@app.actor(isolation="process", timeout=0.5, retry=None)
def punctual() -> str:
    """Its timeout is shorter than a cold start with ``SLOW_IMPORT_SECONDS``."""
    return "in time"


def starve() -> None:
    """No thread can be started for a body the first time."""
    start = threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if thread.name.startswith("tenure-body"):
            starved.stop()
            raise RuntimeError("can't start new thread")
        start(thread)

    starved = patch.object(threading.Thread, "start", starts)
    starved.start()


def import_as_told() -> None:
    """In a child: be as slow, as stuck or as broken as the environment says; or trace."""
    if os.environ.get("TENURE_TEST_TRACES"):
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider

        trace.set_tracer_provider(TracerProvider())
    time.sleep(float(os.environ.get("TENURE_TEST_SLOW_IMPORT", "0")))  # body: what an import of heavy libraries takes
    if os.environ.get("TENURE_TEST_BROKEN_IMPORT"):
        raise ImportError("a library is missing here")
    if os.environ.get("TENURE_TEST_NO_THREAD"):
        starve()
    gate = os.environ.get("TENURE_TEST_IMPORT_GATE")
    if gate:
        mark(f"{gate}/importing", str(os.getpid()))
        while not Path(gate, "open").exists():
            time.sleep(0.01)  # body: imports
    path, _, how = os.environ.get("TENURE_TEST_FIRST_IMPORT", "").partition(" ")
    if path and not Path(path).exists():
        mark(path)
        if how == "exits":
            os._exit(3)
        time.sleep(60)  # body: hangs


if os.environ.get("TENURE_TEST_WORKER", str(os.getpid())) != str(os.getpid()):
    import_as_told()


def _inner() -> list[str]:
    """Where a span that a body opens would belong."""
    from opentelemetry import trace

    within = trace.get_current_span().get_span_context()
    return [f"{within.trace_id:032x}", f"{within.span_id:016x}"]


@app.actor(retry=None)
def within_thread() -> list[str]:
    return _inner()


@app.actor(isolation="process", retry=None)
def within_process() -> list[str]:
    return _inner()
