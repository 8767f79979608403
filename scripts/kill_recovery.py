# ruff: noqa: INP001, T201  (a script, not a package; it prints)
"""From kill -9 of a worker to the next attempt of its run elsewhere, with the default settings: ``python scripts/kill_recovery.py``.

With another life of sessions: ``python scripts/kill_recovery.py 2`` (seconds).
Two workers and a supervisor as processes on an embedded server. Each round kills the worker that runs the body at a
random moment of its lease, and starts another in its place.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tenure.nats.embedded import EmbeddedServer

APP = """
import asyncio
import os
import time
from pathlib import Path

from tenure import App, Config, Context

app = App("kills", config=Config(SETTINGS))


@app.actor
async def work(ctx: Context) -> None:
    Path(f"{ctx.key}-{ctx.attempt}").write_text(f"{os.getpid()} {time.time()}")
    while ctx.attempt == 1:
        await asyncio.sleep(3600)
"""
ROUNDS = 20


async def main(folder: Path, url: str) -> None:
    """Print each round's seconds and their summary."""
    environment = os.environ | {
        "TENURE_NATS_URL": url,
        "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }

    async def start(*command: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tenure.cli", *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE
        )
        if process.stdout is None or not await process.stdout.readline():
            sys.exit(f"{command[0]} did not start")
        return process

    supervisor = await start("supervisor", "kills:app", "--log-level", "error")
    workers = [await start("worker", "kills:app", "--log-level", "error") for _ in range(2)]
    took: list[float] = []
    try:
        for number in range(ROUNDS):
            submitting = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tenure.cli", "submit", "kills:app", "work", "--key", f"k{number}",
                cwd=folder, env=environment, stdout=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            await submitting.wait()
            pid, _ = await written(folder / f"k{number}-1")
            await asyncio.sleep(random.uniform(1.0, 3.0))
            victim = next(worker for worker in workers if worker.pid == int(pid))
            killed = time.time()
            victim.kill()
            await victim.wait()
            _, at = await written(folder / f"k{number}-2")
            took.append(at - killed)
            print(f"{number + 1:3}  {took[-1]:.2f} s", flush=True)
            workers[workers.index(victim)] = await start("worker", "kills:app", "--log-level", "error")
    finally:
        for process in (supervisor, *workers):
            if process.returncode is None:
                process.kill()
                await process.wait()
    print(f"p50 {statistics.median(took):.2f} s, min {min(took):.2f} s, max {max(took):.2f} s of {len(took)} kills")


async def written(file: Path) -> tuple[str, float]:
    """What a body wrote down, as soon as it has."""
    while not (file.exists() and (text := file.read_text(encoding="utf-8"))):  # noqa: ASYNC110, ASYNC240  (another process writes it)
        await asyncio.sleep(0.01)
    pid, at = text.split()
    return pid, float(at)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, EmbeddedServer() as server:
        settings = "".join(
            f"session_ttl_seconds={float(ttl)}, pull_expires_seconds=1, idle_heartbeat_seconds=0.5"
            for ttl in sys.argv[1:]
        )
        Path(name, "kills.py").write_text(APP.replace("SETTINGS", settings), encoding="utf-8")
        asyncio.run(main(Path(name), server.url))
