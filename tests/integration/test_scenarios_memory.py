"""Scenario 45: memory is flat.

Many small tasks through one client and one worker leave nothing behind in their process.

The suite runs a slice, a soak the scenario in full (about a minute) under its bound of 10 MB. In a slice the resident
size moves by a megabyte or two whatever one does, so the tight bound there is on Python's own count of allocated
blocks: whatever is kept per run is at least one block a run.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap

import pytest

from tests.support import sized

TASKS = sized(7_000, 200_000)
WARM_UP = 11_000
"""Past the 10,000 runs that a worker remembers so as to count none of them twice."""
BYTES_A_TASK = 10_000_000 / 200_000
GRAIN = 3_000_000
"""By how much the resident size moves in a slice although nothing is kept."""
BLOCKS_A_TASK = 0.05

PROGRAM = """
    import asyncio, gc, sys
    import psutil
    from tenure import App, Config
    from tenure.loops import run_loop
    from tests.support import wait_until

    _, namespace, url, warm_up, tasks = sys.argv
    app = App(namespace, config=Config(storage="memory", request_timeout_seconds=0.5))

    @app.actor
    async def small(n: int) -> int:
        return n

    def size():
        gc.collect()
        return psutil.Process().memory_info().rss, sys.getallocatedblocks()

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
                await asyncio.sleep(1.0)  # paused: answered requests are forgotten when their time is over
                sizes.extend(size())
            worker.stop()
            await running
            print(*sizes)

    run_loop(main())
"""


@pytest.mark.one_server("it is about the process that works, for which the server makes no difference")
@pytest.mark.timeout(60 + TASKS / 500)
async def test_scenario_45_client_and_worker_are_as_large_after_many_tasks_as_before(nats_server: str, namespace: str):
    """A list, a map by run id, a task or a timer that is kept per run would show: each is at least a block."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), namespace, nats_server, str(WARM_UP), str(TASKS)]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    rss, blocks, rss_after, blocks_after = map(int, done.stdout.split())
    grown, kept = rss_after - rss, blocks_after - blocks
    print(f"{TASKS} tasks: {rss / 1e6:.1f} MB before, {grown / 1e6:+.2f} MB, {kept:+} blocks")
    assert grown < max(GRAIN, TASKS * BYTES_A_TASK)
    assert kept < TASKS * BLOCKS_A_TASK
