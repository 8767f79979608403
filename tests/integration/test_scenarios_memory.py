"""Scenario 45: memory is flat. Many small tasks through one client and one worker leave nothing behind in their process.

The suite runs a slice; ``TENURE_MEMORY_TASKS=200000`` runs the scenario in full (about a minute). The bound is the scenario's
10 MB for 200,000 tasks, shared out: 50 bytes a task, and a floor for the allocator's own grain.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap

import pytest

TASKS = int(os.environ.get("TENURE_MEMORY_TASKS", "20000"))
BYTES_A_TASK = 10_000_000 / 200_000
FLOOR = 1_000_000
"""The allocator takes memory in arenas of this size."""

PROGRAM = """
    import asyncio, gc, sys
    import psutil
    from tenure import App, Config
    from tenure.loops import run_loop
    from tests.support import wait_until

    _, namespace, url, warm_up, tasks = sys.argv
    app = App(namespace, config=Config(storage="memory"))

    @app.actor
    async def small(n: int) -> int:
        return n

    def rss():
        gc.collect()
        return psutil.Process().memory_info().rss

    async def main():
        async with app.connect(url) as client, app.worker(url, concurrency=100) as worker:
            running = asyncio.create_task(worker.run())
            done, sizes = 0, []
            for upto in (int(warm_up), int(warm_up) + int(tasks)):
                while done < upto:
                    await client.submit_many([(small.call(n), f"k{n}") for n in range(done, done + 500)])
                    done += 500
                    await wait_until(
                        lambda: worker.metrics.outcomes["small", "succeeded"] >= done, description=f"{done} tasks"
                    )
                sizes.append(rss())
            worker.stop()
            await running
            print(*sizes)

    run_loop(main())
"""


@pytest.mark.timeout(60 + TASKS / 500)
async def test_client_and_worker_are_as_large_after_many_tasks_as_before(nats_server: str, namespace: str):
    """A list, a map by run id, a task or a timer that is kept per run would show: each is far over 50 bytes."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), namespace, nats_server, "10000", str(TASKS)]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    before, after = map(int, done.stdout.split())
    grown = after - before
    print(f"{TASKS} tasks: {before / 1e6:.1f} MB before, {grown / 1e6:+.2f} MB")
    assert grown < max(FLOOR, TASKS * BYTES_A_TASK), f"{grown} bytes for {TASKS} tasks"
