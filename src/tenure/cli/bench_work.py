"""The measurements of ``tenure bench``.

Each returns figures by name (``bench_report.FIGURES``), and single values in ``series``.

Times that are compared between processes are ``time.time()`` of one machine.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from tenure.cli.bench_probe import percentile, rss_megabytes
from tenure.cli.bench_stage import Stage
from tenure.config import Config
from tenure.core.errors import TenureError
from tenure.nats.connection import ApiError, Connection
from tenure.together import each

Figures = dict[str, float]
Series = dict[str, list[list[float]]]

_IN_FLIGHT = 100
_PAUSE_SECONDS = 0.03
_LONG_START_SECONDS = 5.0
_RAW_PAYLOAD = b"x" * 400
"""About the size of a record of a small task."""
_EXPECT = "Nats-Expected-Last-Subject-Sequence"


class Plan(Struct, frozen=True, kw_only=True):
    """How much of everything.

    ``written_seconds``: what was written so lately is not taken for idle. ``sweep_seconds``: as in ``Config``, of the supervisor
    of the scheduled keys. ``rest_seconds``: whole rounds of all that it does at rest, the rarest once a minute.
    """

    repeats: int = 3
    raw: int = 20_000
    submits: int = 10_000
    limited: int = 7_000
    windows: int = 15
    sequential: int = 1_000
    latencies: int = 300
    delayed: int = 200
    spread_seconds: float = 2.0
    idle_seconds: float = 10.0
    long_runs: int = 1_000
    long_seconds: float = 30.0
    memory_tasks: int = 200_000
    commands: int = 15_000
    scheduled: int = 100_000
    written_seconds: float = 6.0
    sweep_seconds: float = Config().sweep_seconds
    rest_seconds: float = 60.0


QUICK = Plan(
    repeats=1,
    raw=1_000,
    submits=500,
    limited=500,
    windows=3,
    sequential=100,
    latencies=50,
    delayed=50,
    spread_seconds=1.0,
    idle_seconds=1.0,
    long_runs=50,
    long_seconds=1.0,
    memory_tasks=2_000,
    commands=500,
    scheduled=500,
    written_seconds=0.5,
    sweep_seconds=0.5,
    rest_seconds=2.0,
)
FULL = Plan()


async def in_flight(number: int, work: Callable[[int], Awaitable[Any]], lanes: int = _IN_FLIGHT) -> float:
    """Do ``work`` for 0 to ``number``, that many at a time; how many seconds it took."""
    started = time.perf_counter()
    await each(range(number), work, lanes)
    return time.perf_counter() - started


async def one_by_one(number: int, work: Callable[[int], Awaitable[Any]], *, pauses: bool = False) -> list[float]:
    """Do ``work`` for 0 to ``number`` one after the other; milliseconds of each.

    ``pauses``: of random length before each, in which every core falls asleep.
    """
    took: list[float] = []
    for index in range(number):
        if pauses:
            await asyncio.sleep(random.uniform(0.0, _PAUSE_SECONDS))
        started = time.perf_counter()
        await work(index)
        took.append((time.perf_counter() - started) * 1000.0)
    return took


# -- the server's own limits -----------------------------------------------------------------------------------------


async def raw_limits(conn: Connection, plan: Plan, cpu: Callable[[], tuple[float, float, float]]) -> Figures:
    """What the same connection layer does with one write a piece: the yardstick of every other figure."""
    bucket = {"subjects": ["tenure-bench.cas.>"], "max_msgs_per_subject": 1, "discard": "new", "retention": "limits"}
    stream = {"subjects": ["tenure-bench.publish.>"], "retention": "workqueue"}
    for name, spec in (("TENURE_BENCH_CAS", bucket), ("TENURE_BENCH_PUBLISH", stream)):
        answer = await conn.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "file", **spec})
        if isinstance(answer, ApiError):
            raise TenureError(answer.description)
    revisions = [0] * _IN_FLIGHT  # each lane writes to a subject of its own

    async def cas(lane: int) -> None:
        ack = await conn.put(f"tenure-bench.cas.{lane}", _RAW_PAYLOAD, {_EXPECT: str(revisions[lane])})
        if ack.error is not None:
            raise TenureError(ack.error.description)
        revisions[lane] = ack.seq

    async def run(lane: int) -> None:
        for _ in range(writes):
            await cas(lane)

    async def publish(index: int) -> None:
        await conn.put(f"tenure-bench.publish.{index}", _RAW_PAYLOAD)

    writes = plan.raw // _IN_FLIGHT
    before = cpu()
    started = time.perf_counter()
    await asyncio.gather(*(run(lane) for lane in range(_IN_FLIGHT)))
    cas_seconds = time.perf_counter() - started
    after = cpu()
    publish_seconds = await in_flight(plan.raw, publish)
    sequential = await one_by_one(plan.sequential, lambda _: cas(0))
    paused = await one_by_one(plan.latencies, lambda _: cas(0), pauses=True)
    for name in ("TENURE_BENCH_CAS", "TENURE_BENCH_PUBLISH"):
        await conn.api(f"STREAM.DELETE.{name}", {}, timeout=30.0)
    written = writes * _IN_FLIGHT
    return {
        "raw_cas_per_s": written / cas_seconds,
        "raw_publish_per_s": plan.raw / publish_seconds,
        "raw_cas_p50_ms": percentile(sequential, 50),
        "raw_paused_p50_ms": percentile(paused, 50),
        "raw_cpu_s": (after[0] - before[0] + after[2] - before[2]) * 1000.0 / written,
    }


# -- submit and drain ------------------------------------------------------------------------------------------------


async def submits(stage: Stage, plan: Plan, series: Series) -> Figures:
    """Sequential, 100 awaited in flight, and ``submit_many``. Nothing drains meanwhile."""
    client, stamp = stage.client, stage.bench.stamp
    one = stage.numbers(plan.sequential)
    took = await one_by_one(len(one), lambda index: client.submit(stamp.call(one[index])))
    series.setdefault("submit_sequential_ms", []).append(took)
    many = stage.numbers(plan.submits)
    before = stage.cpu()
    seconds = await in_flight(len(many), lambda index: client.submit(stamp.call(many[index])))
    after = stage.cpu()
    bulk = [(stamp.call(number), None) for number in stage.numbers(plan.submits)]
    started = time.perf_counter()
    out = await client.submit_many(bulk)
    bulk_seconds = time.perf_counter() - started
    for outcome in out:
        if isinstance(outcome, TenureError):
            raise outcome
    return {
        "submit_per_s": plan.submits / seconds,
        "submit_many_per_s": plan.submits / bulk_seconds,
        "submit_p50_ms": percentile(took, 50),
        "submit_p99_ms": percentile(took, 99),
        "cpu_client_s": (after[0] - before[0]) * 1000.0 / plan.submits,
        "cpu_server_enqueue_s": (after[2] - before[2]) * 1000.0 / plan.submits,
    }


async def drain(stage: Stage, enqueue: Figures) -> Figures:
    """Everything queued, by one worker: from the first body's start until every wake-up is acknowledged."""
    number = stage.submitted
    stage.start_worker()
    await stage.until(lambda: bool(stage.stamps.read()), 30.0, "the first task to start", every=0.001)
    before = stage.cpu()
    await stage.until(lambda: len(stage.stamps.read()) >= number, 300.0, "every task to start")
    await stage.until_idle(every=0.002)
    ended = time.time()
    after = stage.cpu()
    seconds = ended - stage.stamps.read()[0][0]
    figures = {
        "drain_per_s": number / seconds,
        "cpu_worker_s": (after[1] - before[1]) * 1000.0 / number,
        "cpu_server_drain_s": (after[2] - before[2]) * 1000.0 / number,
    }
    parts = ("cpu_client_s", "cpu_server_enqueue_s")
    figures["cpu_total_s"] = sum(figures[name] for name in list(figures)[1:]) + sum(enqueue[name] for name in parts)
    return figures


# -- latency and lateness --------------------------------------------------------------------------------------------


async def latency(stage: Stage, plan: Plan, series: Series) -> Figures:
    """Submit and wait for the value: one after the other, then with pauses, so that nothing falls into step."""
    await stage.warm_up()
    numbers = iter(stage.numbers(2 * plan.latencies))

    async def one(_index: int) -> None:
        number = next(numbers)
        run = await stage.client.submit(stage.bench.stamp.call(number))
        value = await run.result(30.0)
        if value != number:
            msg = f"task {number} came back as {value!r}"
            raise TenureError(msg)

    took = await one_by_one(plan.latencies, one)
    paused = await one_by_one(plan.latencies, one, pauses=True)
    series.setdefault("result_ms", []).append(took)
    series.setdefault("result_paused_ms", []).append(paused)
    return {
        "result_p50_ms": percentile(took, 50),
        "result_p99_ms": percentile(took, 99),
        "result_paused_p50_ms": percentile(paused, 50),
        "result_paused_p99_ms": percentile(paused, 99),
    }


async def lateness(stage: Stage, plan: Plan, series: Series) -> Figures:
    """Tasks due one after the other, then as many due at one instant, at a random phase of the second each."""
    step = plan.spread_seconds / plan.delayed
    spread = await _late(stage, plan.delayed, lambda index: 1.0 + index * step)
    burst = await _late(stage, plan.delayed, lambda _: 1.0)
    series.setdefault("late_spread_ms", []).append(spread)
    series.setdefault("late_burst_ms", []).append(burst)
    return {
        "late_spread_p50_ms": percentile(spread, 50),
        "late_spread_p99_ms": percentile(spread, 99),
        "late_burst_p50_ms": percentile(burst, 50),
        "late_burst_p99_ms": percentile(burst, 99),
    }


async def _late(stage: Stage, number: int, due_in: Callable[[int], float]) -> list[float]:
    await asyncio.sleep(random.uniform(0.0, 1.0))
    numbers = stage.numbers(number)
    base = time.time()
    due = {task: datetime.fromtimestamp(base + due_in(index), UTC) for index, task in enumerate(numbers)}
    have = len(stage.stamps.read())
    await in_flight(
        number, lambda index: stage.client.submit(stage.bench.stamp.call(numbers[index]), at=due[numbers[index]])
    )
    await stage.until(
        lambda: len(stage.stamps.read()) >= have + number, 30.0, "every delayed task to start", every=0.05
    )
    started = {task: at for at, task in stage.stamps.read()[have:]}
    return [(started[task] - at.timestamp()) * 1000.0 for task, at in due.items()]


# -- an idle worker, and a long life ---------------------------------------------------------------------------------


async def idle(stage: Stage, plan: Plan, series: Series) -> Figures:
    """A fresh worker with nothing to do, after a few tasks."""
    await stage.warm_up()
    await asyncio.sleep(min(1.0, plan.idle_seconds))
    shares: list[float] = []
    for _ in range(3):
        before, started = stage.cpu()[1], time.perf_counter()
        await asyncio.sleep(plan.idle_seconds / 3.0)
        shares.append((stage.cpu()[1] - before) / (time.perf_counter() - started) * 100.0)
    series.setdefault("idle_cpu_percent", []).append(shares)
    return {"idle_rss_mb": rss_megabytes(stage.worker.pid), "idle_cpu_percent": sum(shares) / len(shares)}


async def long_runs(stage: Stage, plan: Plan) -> Figures:
    """Many bodies that only wait: what keeping them alive costs (in-progress acks, the lease, heartbeats)."""
    stage.start_worker(plan.long_runs)
    config, numbers = stage.bench.app.config, stage.numbers(plan.long_runs)
    settled = min(config.ack_wait_seconds, plan.long_seconds)  # by then every message in hand is acknowledged as such
    until = time.time() + _LONG_START_SECONDS + settled + plan.long_seconds
    out = await stage.client.submit_many([(stage.bench.hold.call(number, until), None) for number in numbers])
    for outcome in out:
        if isinstance(outcome, TenureError):
            raise outcome
    await stage.until(lambda: len(stage.stamps.read()) >= len(numbers), _LONG_START_SECONDS, "every long run to start")
    await asyncio.sleep(settled)
    before, started = stage.cpu(), time.perf_counter()
    await asyncio.sleep(plan.long_seconds)
    took, after = time.perf_counter() - started, stage.cpu()
    return {
        "long_worker_cpu_percent": (after[1] - before[1]) / took * 100.0,
        "long_server_cpu_percent": (after[2] - before[2]) / took * 100.0,
    }


async def memory(stage: Stage, plan: Plan, series: Series, advance: Callable[[int], None]) -> Figures:
    """Many small tasks through one worker: its memory after a tenth of them, and at the end."""
    size = max(1, plan.memory_tasks // 40)
    seen: list[float] = []
    warm = float("nan")
    for chunk in range(0, plan.memory_tasks, size):
        call = stage.bench.noop.call()
        todo = stage.numbers(min(size, plan.memory_tasks - chunk))
        for outcome in await stage.client.submit_many([(call, None)] * len(todo)):
            if isinstance(outcome, TenureError):
                raise outcome
        if chunk < plan.memory_tasks // 10 <= chunk + size:
            await stage.until_idle()
            warm = rss_megabytes(stage.worker.pid)
        seen.append(rss_megabytes(stage.worker.pid))
        advance(len(todo))
    await stage.until_idle(every=0.05)
    end = rss_megabytes(stage.worker.pid)
    series.setdefault("memory_rss_mb", []).append([*seen, end])
    return {"memory_growth_mb": end - warm}
