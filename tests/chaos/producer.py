"""A producer process: asks for everything a client can ask for, on a bounded set of keys, and writes what it was told.

Goes on through every outage until SIGTERM. Run as ``python -m tests.chaos.producer SEED RATE KEYS``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tenure import Client, KeyIsLive, OutcomeUnknown, RunCancelled, RunFailed, RunSuperseded, TenureError, Unavailable
from tenure.actors import Call
from tests.chaos.bodies import (
    again,
    app,
    block,
    doomed,
    drowsy,
    flaky,
    hooked,
    nap,
    noop,
    parent,
    stubborn,
    thread,
    tick,
)
from tests.chaos.journal import Journal
from tests.history.evidence import AskLine

_AT_ONCE = 24
_HOT = 40
"""So many keys get nearly half of everything, so that what is asked of one key meets what runs of it."""
_OVERLAPS = ("stop", "wait", "parallel")


class Producer:
    """Asks at a rate, so many at once."""

    def __init__(self, client: Client, journal: Journal, chance: random.Random, keys: int) -> None:
        self._client = client
        self._journal = journal
        self._chance = chance
        self._keys = keys

    async def ask(self) -> None:
        """One thing, chosen by chance."""
        dice = self._chance.random()
        # what ends or replaces is mostly asked of keys that are likely to live
        hot = self._chance.random() < (0.3 if dice < 0.55 else 0.8)
        key = f"k{self._chance.randrange(min(_HOT, self._keys) if hot else self._keys)}"
        if dice < 0.55:
            await self._submit(key)
        elif dice < 0.75:
            await self._replace(key)
        elif dice < 0.88:
            await self._cancel(key)
        elif dice < 0.93:
            if await self._cancel(key):
                await self._submit(key)
        elif dice < 0.96:
            await self._purge(key)
        else:
            await self._result(key)

    def _call(self) -> Call[Any]:
        chance = self._chance
        seconds = round(0.2 + 2.8 * chance.random() ** 2, 3)
        calls: list[tuple[int, Callable[[], Call[Any]]]] = [
            (20, noop.call),
            (20, partial(nap.call, seconds)),
            (12, partial(thread.call, seconds / 2)),
            (2, partial(block.call, seconds / 10)),
            (12, flaky.call),
            (6, doomed.call),
            (6, tick.call),
            (8, partial(parent.call, chance.randrange(1, 4))),
            (6, drowsy.call),
            (8, hooked.call),
            (5, stubborn.call),
            (6, again.call),
        ]
        return chance.choices([call for _, call in calls], weights=[weight for weight, _ in calls])[0]()

    def _delay(self) -> float | None:
        return self._chance.choice((None, None, None, 0.5, 1.0, 3.0)) if self._chance.random() < 0.3 else None

    async def _submit(self, key: str) -> None:
        asked = time.time()
        if_live = self._chance.choices(("keep", "replace", "reject"), weights=(6, 2, 2))[0]
        try:
            run = await self._client.submit(self._call(), key=key, delay=self._delay(), if_live=if_live)  # type: ignore[arg-type]  # one of three
        except KeyIsLive:
            self._told(asked, "submit", key, "live")
        except TenureError as error:
            self._failed(asked, "submit", key, error)
        else:
            self._told(asked, "submit", key, "accepted" if run.accepted else "kept", run.run_id, run.generation)

    async def _replace(self, key: str) -> None:
        asked = time.time()
        overlap: Any = self._chance.choice(_OVERLAPS)
        try:
            run = await self._client.replace(self._call(), key=key, overlap=overlap, delay=self._delay())
        except KeyIsLive:
            self._told(asked, "replace", key, "live")
        except TenureError as error:
            self._failed(asked, "replace", key, error)
        else:
            self._told(asked, "replace", key, "accepted", run.run_id, run.generation)

    async def _cancel(self, key: str) -> bool:
        asked = time.time()
        try:
            out = await self._client.cancel(key, reason="chaos")
        except TenureError as error:
            self._failed(asked, "cancel", key, error)
            return False
        self._told(asked, "cancel", key, out.outcome, out.run_id or "", out.generation or 0)
        return True

    async def _purge(self, key: str) -> None:
        asked = time.time()
        try:
            purged = await self._client.purge(key)
        except KeyIsLive:
            self._told(asked, "purge", key, "live")
        except TenureError as error:
            self._failed(asked, "purge", key, error)
        else:
            self._told(asked, "purge", key, "purged" if purged else "absent")

    async def _result(self, key: str) -> None:
        """Start a run and wait for what it says: ``run id.attempt``, for every actor."""
        asked = time.time()
        try:
            run = await self._client.submit(self._call(), key=key)
        except TenureError as error:
            self._failed(asked, "submit", key, error)
            return
        self._told(asked, "submit", key, "accepted" if run.accepted else "kept", run.run_id, run.generation)
        asked = time.time()
        try:
            value = await run.result(timeout=5.0)
        except (RunFailed, RunCancelled, RunSuperseded) as error:
            told = {RunFailed: "failed", RunCancelled: "cancelled", RunSuperseded: "superseded"}[type(error)]
        except TimeoutError:
            told = "timeout"
        except TenureError as error:
            self._failed(asked, "result", key, error)
            return
        else:
            told = "succeeded" if str(value).startswith(f"{run.run_id}.") else f"the value of another run: {value}"
        self._told(asked, "result", key, told, run.run_id, run.generation)

    def _failed(self, asked: float, ask: str, key: str, error: TenureError) -> None:
        if isinstance(error, OutcomeUnknown):
            self._told(asked, ask, key, "unknown", error.run_id or "")
        elif isinstance(error, Unavailable):
            self._told(asked, ask, key, "unavailable")
        else:
            self._told(asked, ask, key, f"error {type(error).__name__}: {error}")

    def _told(self, asked: float, ask: Any, key: str, told: str, run_id: str = "", generation: int = 0) -> None:
        self._journal.write(
            AskLine(asked=asked, wall=time.time(), ask=ask, key=key, told=told, run_id=run_id, generation=generation)
        )


async def _main(seed: int, rate: float, keys: int) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    journal = Journal(Path(os.environ["CHAOS_FOLDER"]), "asks")
    chance = random.Random(f"{seed}.{os.environ['CHAOS_LIFE']}")  # one that comes back asks for other things
    while not stopping.is_set():
        with contextlib.suppress(TenureError):  # no server yet, or no leader: what asks for a start tries again
            async with app.connect() as client:
                await _ask_until(stopping, Producer(client, journal, chance, keys), rate)
                return
        await asyncio.sleep(0.2)  # paused: before the next try to connect


async def _ask_until(stopping: asyncio.Event, producer: Producer, rate: float) -> None:
    running: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    next_at = loop.time()
    while not stopping.is_set():
        next_at = max(next_at + 1.0 / rate, loop.time() - 1.0)
        await asyncio.sleep(max(0.0, next_at - loop.time()))  # paused: the rate
        if len(running) >= _AT_ONCE:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(producer.ask())
        running.add(task)
        task.add_done_callback(running.discard)
    if running:
        await asyncio.wait(running, timeout=8.0)
    for task in running:
        if task.done():
            task.result()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
