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
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tenure import (
    Client,
    InvalidCall,
    KeyIsLive,
    OutcomeUnknown,
    Run,
    RunCancelled,
    RunFailed,
    RunSuperseded,
    TenureError,
    Unavailable,
)
from tenure.actors import Call
from tests.chaos.bodies import (
    again,
    app,
    block,
    cooled,
    curbed,
    doomed,
    drowsy,
    flaky,
    hooked,
    metered,
    nap,
    noop,
    parent,
    settled,
    shared,
    solo,
    stubborn,
    thread,
    tick,
)
from tests.chaos.journal import Journal
from tests.history.evidence import CHIME, AskLine

Choice = tuple[int, Callable[[], Call[Any]]]
"""What may be asked for, and its weight."""
_AT_ONCE = 24
_HOT = 40
"""So many keys get nearly half of everything, so that what is asked of one key meets what runs of it."""
_OVERLAPS = ("stop", "wait", "parallel")
_PACED = 6
"""So many keys, ``p0`` and so on, have the actors to which time matters, each one of them alone."""
_SWITCHES: tuple[dict[str, str], ...] = (
    {"queue": "plain"},
    {"actor": "nap"},
    {"actor": "metered"},
    {"pattern": "k1*"},
    {"pattern": "p[0-2]"},
)


class Producer:
    """Asks at a rate, so many at once."""

    def __init__(
        self,
        client: Client,
        journal: Journal,
        chance: random.Random,
        keys: int,
        more: Callable[[random.Random], list[Choice]] = lambda _chance: [],
    ) -> None:
        """``more``: what else may be asked for."""
        self._client = client
        self._more = more
        self._journal = journal
        self._chance = chance
        self._keys = keys
        self._asks = 0
        self._lately: deque[str] = deque(maxlen=4)

    async def ask(self) -> None:
        """One thing, chosen by chance."""
        dice = self._chance.random()
        if dice < 0.02:
            await self._switch()
            return
        if dice < 0.1:
            await self._paced()
            return
        if dice < 0.14:
            await self._trigger()
            return
        dice = self._chance.random()
        # what ends or replaces is mostly asked of keys that are likely to live
        hot = self._chance.random() < (0.3 if dice < 0.52 else 0.8)
        key = f"k{self._chance.randrange(min(_HOT, self._keys) if hot else self._keys)}"
        if dice < 0.52:
            await self._submit(key)
        elif dice < 0.71:
            await self._replace(key)
        elif dice < 0.84:
            await self._cancel(key)
        elif dice < 0.88:
            if await self._cancel(key):
                await self._submit(key)
        elif dice < 0.91:
            await self._purge(key)
        elif dice < 0.96:
            await self._status(key)
        else:
            await self._result(key)

    def _call(self) -> Call[Any]:
        chance = self._chance
        seconds = round(0.2 + 2.8 * chance.random() ** 2, 3)
        calls: list[Choice] = [
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
            (12, solo.call),
            (5, metered.call),
            (8, curbed.call),
            (16, partial(shared.call, chance.choice("aab"), seconds / 2)),
            *self._more(chance),
        ]
        return chance.choices([call for _, call in calls], weights=[weight for weight, _ in calls])[0]()

    def _delay(self) -> float | None:
        return self._chance.choice((None, None, None, 0.5, 1.0, 3.0)) if self._chance.random() < 0.3 else None

    async def _switch(self) -> None:
        """Switch something off for a while, until it is switched on, or on. What is on the board tells, not the answer."""
        what: Any = self._chance.choice(_SWITCHES)
        off = self._chance.random() < 0.5
        seconds = self._chance.choice((None, None, 2.0, 8.0))
        with contextlib.suppress(OutcomeUnknown, Unavailable):
            if "pattern" in what:
                await (self._client.block(**what, duration=seconds) if off else self._client.unblock(**what))
            else:
                await (self._client.pause(**what, duration=seconds) if off else self._client.resume(**what))

    async def _paced(self) -> None:
        """Something of a key whose runs are debounced or cool down."""
        number = self._chance.randrange(_PACED)
        key, dice = f"p{number}", self._chance.random()
        call: Callable[[], Call[Any]] = (lambda: settled.call(said=self._number)) if number % 2 else cooled.call
        if dice < 0.8:
            with self._asking("submit", key, mode="keep") as told:
                run = await self._client.submit(call(), key=key)
                told("accepted" if run.accepted else "kept", run.run_id, run.generation)
        elif dice < 0.9:
            with self._asking("replace", key) as told:
                run = await self._client.replace(call(), key=key)
                told("accepted", run.run_id, run.generation)
        else:
            await self._cancel(key)

    async def _submit(self, key: str) -> Run[Any] | None:
        if_live: Any = self._chance.choices(("keep", "replace", "reject"), weights=(6, 2, 2))[0]
        run: Run[Any] | None = None
        self._lately.append(key)
        with self._asking("submit", key, mode=if_live) as told:
            run = await self._client.submit(self._call(), key=key, delay=self._delay(), if_live=if_live)
            told("accepted" if run.accepted else "kept", run.run_id, run.generation)
        return run

    async def _replace(self, key: str) -> None:
        overlap: Any = self._chance.choice(_OVERLAPS)
        self._lately.append(key)
        with self._asking("replace", key, mode=overlap) as told:
            run = await self._client.replace(self._call(), key=key, overlap=overlap, delay=self._delay())
            told("accepted", run.run_id, run.generation)

    async def _cancel(self, key: str) -> bool:
        outcome = ""
        with self._asking("cancel", key) as told:
            out = await self._client.cancel(key, reason="chaos")
            outcome = out.outcome
            told(outcome, out.run_id, out.generation)
        return bool(outcome)

    async def _trigger(self) -> None:
        """Start what waits now: of the schedule, of what is paced, or of a key that was asked for lately."""
        chance = self._chance
        key = chance.choice((CHIME, CHIME, f"p{chance.randrange(_PACED)}", *self._lately))
        with self._asking("trigger", key) as told:
            try:
                run = await self._client.trigger(key)
            except InvalidCall:
                told("absent")
            else:
                told("accepted" if run.accepted else "kept", run.run_id, run.generation)

    async def _purge(self, key: str) -> None:
        with self._asking("purge", key) as told:
            told("purged" if await self._client.purge(key) else "absent")

    async def _status(self, key: str) -> None:
        with self._asking("status", key) as told:
            status = await self._client.status(key)
            if status is None:
                told("none")
            else:
                told(status.phase, status.run_id, status.generation, status.attempt)

    async def _result(self, key: str) -> None:
        """Start a run and wait for what it says: ``run id.attempt``, for every actor."""
        run = await self._submit(key)
        if run is None:
            return
        with self._asking("result", key) as told:
            try:
                value = await run.result(timeout=5.0)
            except (RunFailed, RunCancelled, RunSuperseded) as error:
                ends = {RunFailed: "failed", RunCancelled: "cancelled", RunSuperseded: "superseded"}
                told(ends[type(error)], run.run_id, run.generation)
            except TimeoutError:
                told("timeout", run.run_id, run.generation)
            else:
                good = str(value).startswith(f"{run.run_id}.")
                told("succeeded" if good else f"the value of another run: {value}", run.run_id, run.generation)

    @property
    def _number(self) -> str:
        """The id of what was asked last."""
        return f"{os.getpid()}-{self._asks}"

    @contextmanager
    def _asking(self, ask: Any, key: str, mode: str = "") -> Iterator[Callable[..., None]]:
        """Write down that something is asked, and what is told; whoever is killed in between leaves the first line."""
        self._asks += 1
        line = AskLine(asked=time.time(), wall=0.0, ask=ask, key=key, told="", id=self._number, mode=mode)
        self._journal.write(line)

        def told(what: str, run_id: str = "", generation: int = 0, attempt: int = 0) -> None:
            self._journal.write(
                replace(line, wall=time.time(), told=what, run_id=run_id, generation=generation, attempt=attempt)
            )

        try:
            yield told
        except KeyIsLive as error:
            told("live", error.run_id or "", error.generation or 0)
        except OutcomeUnknown as error:
            told("unknown", error.run_id or "")
        except Unavailable:
            told("unavailable")
        except TenureError as error:
            told(f"error {type(error).__name__}: {error}")


async def _main(seed: int, rate: float, keys: int) -> None:
    from tests.chaos.apart import calls  # not for the simulation, which has no child processes

    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    journal = Journal(Path(os.environ["CHAOS_FOLDER"]), "asks")
    chance = random.Random(f"{seed}.{os.environ['CHAOS_LIFE']}")  # one that comes back asks for other things
    while not stopping.is_set():
        with contextlib.suppress(TenureError):  # no server yet, or no leader: what asks for a start tries again
            async with app.connect() as client:
                await _ask_until(stopping, Producer(client, journal, chance, keys, calls), rate)
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
