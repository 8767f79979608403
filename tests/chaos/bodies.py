"""The app that chaos runs: one actor for each way in which a body can behave.

Not named after them: pytest would import it in the place of the package ``actors``. Every body writes a line when it
starts and one when it ends. Which attempt fails is fixed by its run id, so that nothing
here needs a state of its own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

from tenure import App, Config, Context, Cooldown, Debounce, Limit, RateLimit, Retry, Snooze, Stopped
from tenure.core.rates import Rate, rate_name
from tests.chaos.journal import Journal, steady
from tests.history.evidence import (
    CHIME,
    CHIME_SECONDS,
    COOLDOWN_SECONDS,
    COOLED,
    CURBED,
    CURBED_SECONDS,
    CURBED_STARTS,
    GRACE_SECONDS,
    HOOKED,
    MAX_WAIT_SECONDS,
    SETTLE_SECONDS,
    SETTLED,
    BodyLine,
)

REPLICAS = int(os.environ.get("CHAOS_REPLICAS", "1"))
app = App(
    os.environ.get("CHAOS_NAMESPACE", "chaos"),
    config=Config(
        replicas=REPLICAS,
        session_ttl_seconds=3.0,
        ack_wait_seconds=6.0 if REPLICAS == 1 else 15.0,
        request_timeout_seconds=1.0,
        patience_seconds=5.0,
        idle_heartbeat_seconds=1.0,
        pull_expires_seconds=10.0,
        drain_seconds=2.0,
        sweep_seconds=2.0,
        reread_seconds=5.0,
    ),
)
GRACE = GRACE_SECONDS
QUICK = Retry(max_attempts=6, initial=0.1, maximum=0.5)


@cache
def _journal(_pid: int) -> Journal:
    return Journal(Path(os.environ["CHAOS_FOLDER"]), "bodies")


def line(
    ctx: Context,
    actor: str,
    what: Literal["start", "beat", "end"],
    how: str = "",
    spawned: tuple[str, ...] = (),
    *,
    rescheduled: bool = False,
    worker: int = 0,
    **about: Any,
) -> None:
    """Write a line of a body. ``worker``: the process id of its worker, if it runs in a child process of that."""
    _journal(os.getpid()).write(
        BodyLine(
            at=steady(),
            wall=time.time(),
            pid=worker or os.getpid(),
            child=os.getpid() if worker else 0,
            actor=actor,
            key=ctx.key,
            generation=ctx.generation,
            run_id=ctx.run_id,
            attempt=ctx.attempt,
            fence=ctx.fence,
            session=ctx.session,
            what=what,
            how=how,
            spawned=spawned,
            rescheduled=rescheduled,
            queue=app.actors[actor].task.queue,
            **about,
        )
    )


class Asked:
    """What a body has asked for: keys of children, and whether a successor."""

    def __init__(self) -> None:
        self.spawned: list[str] = []
        self.rescheduled = False


@contextmanager
def told(ctx: Context, actor: str, worker: int = 0, **about: Any) -> Iterator[Asked]:
    """Write the start and the end of a body, and what it has asked for; and ``about`` its start, as the line has it."""
    asked = Asked()
    line(ctx, actor, "start", worker=worker, **about)
    how = "return"
    try:
        yield asked
    except asyncio.CancelledError:
        how = f"stop {ctx.stop_reason}"
        raise
    except Stopped as stopped:
        how = f"stop {stopped.reason}"
        raise
    except Snooze:
        how = "snooze"
        raise
    except Exception:
        how = "raise"
        raise
    finally:
        line(ctx, actor, "end", how, tuple(asked.spawned), rescheduled=asked.rescheduled, worker=worker)


def tag(ctx: Context) -> str:
    return f"{ctx.run_id}.{ctx.attempt}"


def by_chance(ctx: Context, of: int) -> bool:
    """True for one attempt of ``of``, the same for ever."""
    return crc32(tag(ctx).encode()) % of == 0


@app.actor(retry=QUICK, grace=GRACE, result_ttl=5)
async def noop(ctx: Context) -> str:
    """Short: one write after the other. Its record expires soon, so its key lives again and again."""
    with told(ctx, "noop"):
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE)
async def nap(ctx: Context, seconds: float) -> str:
    with told(ctx, "nap"):
        await asyncio.sleep(seconds)  # body:
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE, queue="plain")
def thread(ctx: Context, seconds: float) -> str:
    with told(ctx, "thread"):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ctx.check()
            time.sleep(0.02)  # body:
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE)
async def block(ctx: Context, seconds: float) -> str:
    """Blocks the whole event loop of its worker."""
    with told(ctx, "block"):
        time.sleep(seconds)  # noqa: ASYNC251  # body: (blocking the loop is what this body is for)
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE, priority="high")
async def flaky(ctx: Context) -> str:
    with told(ctx, "flaky"):
        await asyncio.sleep(0.05)  # body:
        if by_chance(ctx, 2):
            raise RuntimeError("this attempt fails")
        return tag(ctx)


@app.actor(retry=Retry(max_attempts=3, initial=0.1, maximum=0.2), grace=GRACE, priority="low")
async def doomed(ctx: Context) -> str:
    with told(ctx, "doomed"):
        raise RuntimeError("every attempt fails")


@app.actor(retry=QUICK, grace=GRACE, every=timedelta(seconds=0.4))
async def tick(ctx: Context) -> str:
    """Perpetual; every fifth generation of its key ends the chain, which follows with a short run."""
    with told(ctx, "tick") as asked:
        await asyncio.sleep(0.1)  # body:
        if ctx.generation % 5 == 0:
            ctx.reschedule(delay=0.0, call=noop.call())
            asked.rescheduled = True
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE)
async def parent(ctx: Context, children: int) -> str:
    """Spawns children under keys that name this very attempt."""
    with told(ctx, "parent") as asked:
        for number in range(children):
            key = f"child-{ctx.run_id}-{ctx.attempt}-{number}"
            ctx.spawn(nap.call(0.05) if number % 2 else flaky.call(), key=key)
            asked.spawned.append(key)
        await asyncio.sleep(0.05)  # body:
        if by_chance(ctx, 4):
            raise RuntimeError("this attempt fails: its children must not be")
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE)
async def note(ctx: Context) -> str:
    """A hook."""
    with told(ctx, "note"):
        return tag(ctx)


@app.actor(
    name=HOOKED, retry=Retry(max_attempts=2, initial=0.1), grace=GRACE, on_success=note, on_failure=note, on_cancel=note
)
async def hooked(ctx: Context) -> str:
    """Ends in every way, and has a hook for each."""
    with told(ctx, HOOKED):
        await asyncio.sleep(0.1)  # body:
        if by_chance(ctx, 2):
            raise RuntimeError("this attempt fails")
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE)
async def drowsy(ctx: Context) -> str:
    with told(ctx, "drowsy"):
        await asyncio.sleep(0.02)  # body:
        if ctx.attempt < 3:
            raise Snooze(0.3)
        return tag(ctx)


@app.actor(retry=Retry(max_attempts=4, initial=0.1, maximum=0.2), timeout=0.4, grace=0.4)
async def stubborn(ctx: Context) -> str:
    """Its first two attempts go on for two seconds whatever they are told."""
    with told(ctx, "stubborn"):
        until = time.monotonic() + (2.0 if ctx.attempt < 3 else 0.0)
        while time.monotonic() < until:
            try:
                await asyncio.sleep(0.05)  # body:
            except asyncio.CancelledError:
                continue
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE)
async def again(ctx: Context) -> str:
    """Asks for a successor, but for every fourth generation of its key."""
    with told(ctx, "again") as asked:
        await asyncio.sleep(0.05)  # body:
        if ctx.generation % 4:
            ctx.reschedule(delay=0.2)
            asked.rescheduled = True
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE, limits=[Limit(1)])
async def solo(ctx: Context) -> str:
    """One at a time."""
    with told(ctx, "solo", limit="solo", allowed=1):
        await asyncio.sleep(0.1)  # body:
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE, limits=[Limit(3, per="tenant")])
async def shared(ctx: Context, tenant: str, seconds: float) -> str:
    """Three at a time of each tenant; some attempts fail, and ask for a place again."""
    with told(ctx, "shared", limit=f"shared {tenant}", allowed=3):
        await asyncio.sleep(seconds)  # body:
        if by_chance(ctx, 5):
            raise RuntimeError("this attempt fails")
        return tag(ctx)


_METERED = 3, 2.0
"""So many starts in so many seconds."""


@app.actor(retry=QUICK, grace=GRACE, limits=[RateLimit(*_METERED)])
async def metered(ctx: Context) -> str:
    """Not too often."""
    with told(ctx, "metered", rate=rate_name("metered", Rate(n=_METERED[0], seconds=_METERED[1]), b"{}")):
        return tag(ctx)


_CURB = Rate(n=CURBED_STARTS, seconds=CURBED_SECONDS)


@app.actor(name=CURBED, retry=QUICK, grace=GRACE, limits=[RateLimit(_CURB.n, _CURB.seconds, excess="drop")])
async def curbed(ctx: Context) -> str:
    """Not too often, and what is too much is dropped; some attempts fail, and those are not."""
    with told(ctx, CURBED, rate=rate_name(CURBED, _CURB, b"{}")):
        if by_chance(ctx, 3):
            raise RuntimeError("this attempt fails")
        return tag(ctx)


@app.actor(name=SETTLED, retry=QUICK, grace=GRACE, limits=[Debounce(SETTLE_SECONDS, MAX_WAIT_SECONDS)])
async def settled(ctx: Context, said: str) -> str:
    """Many asks make one run, of the last one's argument: its id."""
    with told(ctx, SETTLED, said=said):
        await asyncio.sleep(0.05)  # body:
        return tag(ctx)


@app.actor(name=COOLED, retry=QUICK, grace=GRACE, limits=[Cooldown(COOLDOWN_SECONDS)])
async def cooled(ctx: Context) -> str:
    """Not again so soon."""
    with told(ctx, COOLED):
        await asyncio.sleep(0.05)  # body:
        return tag(ctx)


@app.actor(
    name=CHIME, retry=QUICK, grace=GRACE, cron=f"*/{CHIME_SECONDS:.0f} * * * * *", catch_up="all", autostart=True
)
async def chime(ctx: Context) -> str:
    """Starts by itself, and makes up for what was missed."""
    with told(ctx, CHIME):
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE)
async def mail(ctx: Context, seconds: float) -> str:
    """Asked for by programs without Tenure."""
    with told(ctx, "mail"):
        await asyncio.sleep(seconds)  # body:
        return tag(ctx)
