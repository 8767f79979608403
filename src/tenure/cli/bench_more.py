"""More measurements of ``tenure bench``: limits and rates, the inbox, and what a supervisor costs that has nothing to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.actors import Call
from tenure.cli.bench_actors import STARTS, VALUES, WINDOW
from tenure.cli.bench_probe import cpu_seconds
from tenure.cli.bench_stage import Stage, WorkerProcess
from tenure.cli.bench_work import Figures, Plan, in_flight
from tenure.core.errors import TenureError
from tenure.nats.connection import ApiError
from tenure.nats.scan import watch_scans
from tenure.supervisor.stillness import LONGEST_SECONDS

_LONGEST_SECONDS = 300.0
_BATCH = 10_000
_AHEAD = timedelta(days=1)


LIMITS = {
    "limited": "a limit",
    "rated": "a rate",
    "shared": "a limit per argument",
    "rated_shared": "a rate per argument",
}


async def limited(stage: Stage, plan: Plan, plain: Figures, kind: str) -> Figures:
    """No-op tasks under one of ``LIMITS``, all queued, by one worker: as ``drain``, and its share of that."""
    number = plan.limited
    numbers, bench = stage.numbers(number), stage.bench
    actor = {"limited": bench.capped, "rated": bench.rated, "shared": bench.shared, "rated_shared": bench.rated_shared}
    per_value = kind.endswith("shared")
    calls = [actor[kind].call(task, task % VALUES) if per_value else actor[kind].call(task) for task in numbers]
    await _submit(stage, [(call, None) for call in calls])
    stage.start_worker()
    await stage.until(lambda: bool(stage.stamps.read()), 30.0, "the first limited task to start", every=0.001)
    await stage.until(lambda: len(stage.stamps.read()) >= number, _LONGEST_SECONDS, "every limited task to start")
    await stage.until_idle(every=0.002)
    rate = number / (time.time() - stage.stamps.read()[0][0])
    return {f"{kind}_per_s": rate, f"{kind}_share": rate / plain["drain_per_s"]}


async def full_rate(stage: Stage, plan: Plan) -> Figures:
    """No-op tasks under a rate that is full all the time, all queued, by one worker: how near it comes.

    The first start of each window lies at least a window after that of the one before, so 1 is all that there is.
    """
    number = plan.windows * STARTS + 1
    await _submit(stage, [(stage.bench.full.call(task), None) for task in stage.numbers(number)])
    stage.start_worker()
    await stage.until(
        lambda: len(stage.stamps.read()) >= number, _LONGEST_SECONDS, "every task of a full rate to start"
    )
    started = sorted(at for at, _ in stage.stamps.read())
    share = plan.windows * WINDOW / (started[-1] - started[0])
    return {"full_per_s": share * STARTS / WINDOW, "full_share": share}


async def inbox(stage: Stage, plan: Plan) -> Figures:
    """Commands that lie in the inbox, applied by one supervisor: from the first one to the last one's ack."""
    conn, names = stage.client.stores.conn, stage.client.stores.names
    subject = f"{names.root}.submit.{stage.bench.noop.name}"
    number = len(stage.numbers(plan.commands))

    async def publish(index: int) -> None:
        ack = await conn.put(subject, b"{}", {"Nats-Msg-Id": str(index)})
        if ack.error is not None:
            raise TenureError(ack.error.description)

    async def left() -> int:
        info = await conn.api(f"STREAM.INFO.{names.inbox_stream}", {})
        if isinstance(info, ApiError):
            raise TenureError(info.description)
        return int(info["state"]["messages"])

    await in_flight(number, publish)
    supervisor = stage.start_supervisor()
    first, begun = number, time.perf_counter()
    before = cpu_seconds(supervisor.pid)
    while (now := await left()) > 0:
        if first == number:
            first, begun, before = now, time.perf_counter(), cpu_seconds(supervisor.pid)
        supervisor.check()
        if time.perf_counter() - begun > _LONGEST_SECONDS:
            raise TenureError("the supervisor does not get through its inbox")
        await asyncio.sleep(0.01)
    took = time.perf_counter() - begun
    cpu = cpu_seconds(supervisor.pid) - before
    await supervisor.stop()
    return {"inbox_per_s": first / took, "cpu_inbox_s": cpu * 1000.0 / max(1, first)}


class Passes:
    """A supervisor's passes over all records, as the server tells of them: each reads through a consumer of its own.

    ``began``, ``ended``: when, and what the supervisor had taken of a CPU by then; both in seconds.
    """

    def __init__(self, pid: int) -> None:
        self.began: list[tuple[float, float]] = []
        self.ended: list[tuple[float, float]] = []
        self._pid = pid

    @classmethod
    async def watch(cls, stage: Stage, supervisor: WorkerProcess) -> Passes:
        """From now on. A process that was started a moment ago has not connected yet."""
        passes, stores = cls(supervisor.pid), stage.client.stores
        began, ended = passes.began, passes.ended
        await watch_scans(
            stores.conn, stores.names, lambda: began.append(passes.now()), lambda: ended.append(passes.now())
        )
        return passes

    def now(self) -> tuple[float, float]:
        """As an entry of ``began``."""
        return time.perf_counter(), cpu_seconds(self._pid)

    async def rest(self, seconds: float) -> float:
        """The share of a CPU in so many seconds without a pass. Raises TenureError if there are none."""
        since = now = self.now()
        known, give_up = -1, now[0] + _LONGEST_SECONDS
        while now[0] < give_up:
            seen = len(self.began) + len(self.ended)
            if seen != known or len(self.began) > len(self.ended):
                known, since = seen, now
            elif now[0] - since[0] >= seconds:
                return _share(since, now)
            await asyncio.sleep(0.05)
            now = self.now()
        raise TenureError("the supervisor does not come to rest")


def _share(since: tuple[float, float], until: tuple[float, float]) -> float:
    """What it took of a CPU from one to the other."""
    return (until[1] - since[1]) / (until[0] - since[0])


async def scheduled(stage: Stage, plan: Plan) -> Figures:
    """Keys whose runs are due tomorrow, and one supervisor: how soon it is ready, what its passes cost, and what it does at rest.

    It passes over them again and again for as long as one more run waits, without a worker: measured from the beginning of a
    pass to that of the next. Then there is nothing to look for, and a pass every quarter of an hour, which nobody waits for
    here: its share is added to what is measured at rest.
    """
    at = datetime.now(UTC) + _AHEAD
    runs: list[tuple[Call[Any], str | None]] = [(stage.bench.noop.call(), None)] * plan.scheduled
    for start in range(0, len(runs), _BATCH):
        await _submit(stage, runs[start : start + _BATCH], at=at)
    waiting = await stage.client.submit(stage.bench.noop.call())
    await asyncio.sleep(plan.written_seconds)
    started, supervisor = time.perf_counter(), stage.start_supervisor(plan.sweep_seconds)
    passes = await Passes.watch(stage, supervisor)

    async def until(done: Callable[[], bool], what: str) -> None:
        while not done():
            supervisor.check()
            if time.perf_counter() - started > _LONGEST_SECONDS:
                msg = f"the supervisor {what}"
                raise TenureError(msg)
            await asyncio.sleep(0.01)

    await until(lambda: supervisor.is_ready, "does not become ready")
    ready = time.perf_counter() - started
    await until(lambda: len(passes.began) > 1, "does not pass over the records again")
    first, second = passes.began[:2]
    worker = stage.start_worker()
    await waiting.result(_LONGEST_SECONDS)
    await worker.stop()
    resting = await passes.rest(plan.rest_seconds)
    supervisor.check()
    supervisor.kill()
    sweeping = _share(first, second)
    a_pass = (sweeping - resting) * (second[0] - first[0])
    return {
        "supervisor_ready_s": ready,
        "sweeping_cpu_percent": sweeping * 100.0,
        "sweep_cpu_s": a_pass,
        "scheduled_cpu_percent": (resting + a_pass / LONGEST_SECONDS) * 100.0,
    }


async def _submit(stage: Stage, runs: list[tuple[Call[Any], str | None]], at: datetime | None = None) -> None:
    for outcome in await stage.client.submit_many(runs, at=at):
        if isinstance(outcome, TenureError):
            raise outcome
