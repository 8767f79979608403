"""A process without Tenure: publishes commands to the inbox with plain nats-py, some twice, with one message id, some wrong.

What has no answer is published again, and some of what has one too, up to six seconds later: a server that was killed does
not know the message ids of commands that were applied before, but the records do, for two minutes.
Goes on through every outage until SIGTERM. Run as ``python -m tests.chaos.stranger SEED RATE``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import nats
import nats.errors
from msgspec.structs import replace

from tenure.core.marks import Place, command_id
from tests.chaos.journal import Journal
from tests.history.evidence import AskLine, CommandLine

_TRIES = 8
_POSTS = 10
_COPY_SECONDS = (1.0, 1.0, 6.0)
Verb = Literal["submit", "replace", "cancel"]
Publish = Callable[[str, bytes, Mapping[str, str]], Awaitable[object]]
"""Publishes to a stream; raises nats-py's errors, or TimeoutError, where no PubAck came."""
_WRONG: tuple[tuple[Verb, bytes, dict[str, str]], ...] = (
    ("submit", b'{"seconds": ', {}),
    ("submit", b"\xff\xfe", {}),
    ("submit", b'{"seconds": "soon"}', {}),
    ("submit", b'{"minutes": 1}', {}),
    ("replace", b'{"seconds": 1}', {"Tenure-Overlap": "sideways"}),
    ("replace", b'{"seconds": 1}', {"Tenure-Dealy": "5"}),
    ("cancel", b"", {"Tenure-Delay": "5"}),
)


class Stranger:
    """Publishes commands. Those of one key are not of a client's too, so that what they do can be told apart."""

    def __init__(self, publish: Publish, namespace: str, folder: Path, chance: random.Random) -> None:
        self._publish_once = publish
        self._root = f"tenure.{namespace}"
        self._commands = Journal(folder, "commands")
        self._asks = Journal(folder, "asks")
        self._chance = chance
        self._number = 0

    async def ask(self) -> None:
        """One thing, chosen by chance; the first is wrong, so that also a short run has some that are."""
        dice = self._chance.random()
        seconds = round(0.5 * self._chance.random() ** 2, 3)
        if not self._number or dice < 0.08:
            verb, body, headers = self._chance.choice(_WRONG)
            await self._send(verb, f"bad-{self._next()}", body, headers)
        elif dice < 0.6:
            await self._publish("submit", f"mail-{self._next()}", seconds)
        elif dice < 0.85:
            await self._publish("replace", f"post-{os.getpid()}-{self._chance.randrange(_POSTS)}", seconds)
        else:  # a cancel that comes again must not hit the run after the one that it has hit
            key = f"stop-{self._next()}"
            await self._publish("submit", key, 1.0)
            await self._publish("cancel", key)
            await asyncio.sleep(0.5)  # paused: until it is cancelled, as a rule
            await self._publish("submit", key, 1.0)

    def _next(self) -> str:
        self._number += 1
        return f"{os.getpid()}-{self._number}"

    async def _publish(self, verb: Verb, key: str, seconds: float | None = None) -> None:
        body = b"" if seconds is None else json.dumps({"seconds": seconds}).encode()
        await self._send(verb, key, body)

    async def _send(self, verb: Verb, key: str, body: bytes, wrong: Mapping[str, str] | None = None) -> None:
        """``wrong``: more headers of a command that cannot be carried out."""
        subject = f"{self._root}.{verb}" + ("" if verb == "cancel" else ".mail")
        number = self._next()
        its_id = command_id(subject, key, number, Place(0, 0))
        run_id = "" if verb == "cancel" or wrong is not None else its_id
        refusal = "" if wrong is None else its_id
        line = CommandLine(wall=time.time(), verb=verb, key=key, id=number, acked=False, run_id=run_id, refusal=refusal)
        if wrong is None:
            self._asks.write(AskLine(asked=time.time(), wall=0.0, ask=verb, key=key, told="", id=f"inbox {number}"))
        self._commands.write(line)  # whoever is killed before its answer may have been heard
        headers = {"Tenure-Key": key, "Nats-Msg-Id": number} | dict(wrong or {})
        for _ in range(_TRIES):
            try:
                await self._publish_once(subject, body, headers)
            except (nats.errors.Error, nats.errors.TimeoutError, TimeoutError):
                await asyncio.sleep(0.2)  # paused: before it is published again
                continue
            self._commands.write(replace(line, acked=True))
            break
        else:
            return
        if self._chance.random() < 0.3:
            await asyncio.sleep(self._chance.choice(_COPY_SECONDS) * self._chance.random())  # paused: before the copy
            try:
                await self._publish_once(subject, body, headers)
            except (nats.errors.Error, nats.errors.TimeoutError, TimeoutError):
                return


async def _main(seed: int, rate: float) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    chance = random.Random(f"{seed}.{os.environ['CHAOS_LIFE']}")

    async def silent(_error: Exception) -> None:
        """Outages are what this is about."""

    client = await nats.connect(
        os.environ["TENURE_NATS_URL"].split(","),
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.2,
        allow_reconnect=True,
        error_cb=silent,
        pending_size=-1,  # nothing is sent after its answer was given up
    )
    js = client.jetstream(timeout=1.0)

    async def publish(subject: str, body: bytes, headers: Mapping[str, str]) -> object:
        return await js.publish(subject, body, headers=dict(headers))

    stranger = Stranger(publish, os.environ.get("CHAOS_NAMESPACE", "chaos"), Path(os.environ["CHAOS_FOLDER"]), chance)
    await ask_until(stopping, stranger, rate)
    await client.close()


async def ask_until(stopping: asyncio.Event, stranger: Stranger, rate: float) -> None:
    """At a rate, until it is told to stop."""
    running: set[asyncio.Task[Any]] = set()
    while not stopping.is_set():
        task = asyncio.create_task(stranger.ask())
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(1.0 / rate)  # paused: the rate
    if running:
        await asyncio.wait(running, timeout=8.0)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2])))
