"""Whole processes under whatever anybody may publish: a worker and a supervisor on a real server, fed by a stranger.

A batch is a list of deeds, each a kind and a number from which all of it follows. What they publish is what Tenure itself writes, as
it is or spoilt, on every subject that it listens to, about a handful of keys: so records, wake-ups, signals, commands and letters
meet. After each batch tasks of two kinds still come to their end - one by way of the client, one through the inbox - and nothing
in either process crashed, stands still or has kept a slot. The board of switches is left out: who cannot read that starts nothing, by
design.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import nats
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from nats.aio.client import Client as NatsClient

from tenure import App, Client
from tenure.core import dead, permits, rates, sessions
from tenure.core.records import Record, encode, state_of
from tenure.core.subjects import Names, encode_key
from tenure.nats.scan import STATE
from tenure.supervisor import Supervisor
from tenure.testing import nats_server
from tenure.worker import Worker
from tests.fuzz.spoil import spoiled
from tests.fuzz.targets import ACK, RECORDS, TARGETS
from tests.support import FAST, wait_until

KEYS = ("a", "b", "ä c")
ACTORS = ("add", "capped", "nobody")
RUN_IDS = ("r1", "r2", "01KB6Y0000000000000000000A")
SESSIONS = ("s1", "s2")
_SLOTS = 3
"""Few, so that one that is kept is soon missed."""
_SECONDS = 20.0
"""Within which a task must come to its end: a wake-up in the hands of nobody is delivered again after two."""
Message = tuple[str, bytes, dict[str, str]]
Deeds = list[tuple[str, int]]


def app_of(namespace: str) -> App:
    app = App(namespace, config=replace(FAST, sweep_seconds=0.5))

    @app.actor(result_ttl=60)
    async def add(one: int, two: list[str] | None = None) -> int:
        return one + 1

    @app.actor
    async def capped(one: int = 0) -> int:
        return one

    return app


# -- what is published -----------------------------------------------------------------------------------------------


class Maker:
    """Messages of one namespace, drawn from one chance."""

    def __init__(self, names: Names, chance: random.Random, now: float, incarnation: str) -> None:
        self._incarnation = incarnation
        self._names = names
        self._chance = chance
        self._now = now
        self.key, self.actor, self.run_id, self.session = map(chance.choice, (KEYS, ACTORS, RUN_IDS, SESSIONS))

    def record(self) -> Record:
        made = self._chance.choice(RECORDS)
        task = replace(made.task, actor=self.actor, args=Raw(b'{"one":1}'))
        moved = self._now - 1_000.0  # the histories begin at second 1,000
        return replace(made, key=self.key, run_id=self.run_id, task=task, due=made.due and made.due + moved)

    def maybe(self, data: bytes) -> bytes:
        """Spoilt, twice in three times."""
        for _ in range(self._chance.randrange(3)):
            data = spoiled(data, self._chance)
        return data

    def text(self, text: str) -> str:
        return self.maybe(text.encode()).decode("ascii", "ignore")

    def stored(self) -> Message:
        record = self.record()
        said = {} if self._chance.random() < 0.2 else {STATE: self.text(state_of(record))}
        return self._names.record(self.key), self.maybe(encode(record)), said

    def wakeup(self) -> Message:
        record = self.record()
        head = msgspec.json.encode(
            {"i": self._incarnation, "g": record.generation, "r": self._chance.choice((0, 1, 7, 2**60))}
        )
        data = self.maybe(head) + b"\n" + self.maybe(encode(record))
        subject = self._names.work("default", self._chance.choice(("high", "normal")), self.key, self.run_id)
        return self._chance.choice((subject, self._names.park("x", self.key, self.run_id))), self.maybe(data), {}

    def entry(self) -> Message:
        one = sessions.Session(id=self.session, kind="worker", host="h", pid=1, ttl=2.0, started_at=self._now)
        return self._names.session(self.session), self.maybe(msgspec.json.encode(one)), {}

    def signal(self) -> Message:
        one = sessions.StopSignal(run_id=self.run_id, attempt=1, reason="cancel")
        return self._names.stop(self.session, self.run_id, 1), self.maybe(msgspec.json.encode(one)), {}

    def progress(self) -> Message:
        one = sessions.Progress(run_id=self.run_id, attempt=1, done=1.0, at=self._now, note="n")
        return self._names.progress(self.key, self.run_id), self.maybe(msgspec.json.encode(one)), {}

    def letter(self) -> Message:
        made = replace(dead.letter_of(RECORDS[4].outbox[0]), key=self.key, run_id=self.run_id, actor=self.actor)
        return self._names.dead(self.actor, self.key, self.run_id), self.maybe(dead.encode_letter(made)), {}

    def place(self) -> Message:
        permit = permits.Permit(key=self.key, run_id=self.run_id, attempt=1, session=self.session, at=self._now)
        mark = (int(self._now * 1_000_000), 1)
        subject, entry = self._chance.choice(
            (
                (self._names.limit("x"), permits.encode_entry(permits.Entry(n=1, permits=(permit,)))),
                (self._names.rate("x"), rates.encode_entry(rates.Entry(n=1, marks=(mark,)))),
            )
        )
        return subject, self.maybe(entry), {}

    def command(self) -> Message:
        head, _, payload = self._chance.choice(TARGETS["command"].seeds).decode().partition("\n\n")
        verb, actor, *lines = head.split("\n")
        said = dict(line.split(": ", 1) for line in lines) | {"Tenure-Key": self.key}
        what = verb if verb == "cancel" else f"{verb}.{self._chance.choice((actor, self.actor))}"
        root = self._chance.choice((self._names.root, self._names.root, self._names.api_prefix[:-1]))
        headers = {self.text(name): self.text(value) for name, value in said.items()}
        return f"{root}.{what}", self.maybe(payload.encode()), headers

    def offer(self) -> Message:
        subject = self._names.work("default", "normal", self.key, self.run_id)
        data = msgspec.json.encode({"subject": subject, "reply": ACK})
        return self._names.handover("default", self.actor), self.maybe(data), {}

    def refusal(self) -> Message:
        return self._names.refused(self.key), self.maybe(TARGETS["refusal"].seeds[0]), {}

    def noise(self) -> Message:
        """Bytes that are nothing, somewhere below a prefix of ours, with or without the ends that a subject has there."""
        prefix = self._chance.choice(
            (self._names.runs_prefix, self._names.sessions_prefix, self._names.work_prefix, self._names.dead_prefix)
        )
        tail = ".".join(
            self._chance.choice((encode_key(self.key), "x", "default")) for _ in range(self._chance.randint(1, 4))
        )
        return prefix + tail, self._chance.randbytes(self._chance.randrange(40)), {}


KINDS: dict[str, Callable[[Maker], Message]] = {
    name: getattr(Maker, name)
    for name in (
        *("stored", "wakeup", "entry", "signal", "progress", "letter", "place", "command", "offer", "refusal", "noise"),
    )
}
BATCHES = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 2**32 - 1)), min_size=1, max_size=25)

EVERYTHING = [(kind, number) for number in range(30) for kind in KINDS]
"""Borne first: each kind, thirty times."""


def messages(names: Names, deeds: Deeds, now: float, incarnation: str) -> list[Message]:
    """``incarnation``: of the bucket; of a wake-up that names another one nothing is believed."""
    return [KINDS[kind](Maker(names, random.Random(number), now, incarnation)) for kind, number in deeds]


# -- who bears it ----------------------------------------------------------------------------------------------------


class World:
    """A worker and a supervisor that run, and a stranger."""

    def __init__(self, client: Client, worker: Worker, supervisor: Supervisor, stranger: NatsClient) -> None:
        self._client = client
        self._worker = worker
        self._supervisor = supervisor
        self._stranger = stranger
        self._numbers = itertools.count()

    async def bear(self, deeds: Deeds) -> None:
        """Publish a batch; then everything must be as it was."""
        incarnation = self._client.stores.topology.incarnation
        for subject, data, headers in messages(self._client.app.names, deeds, self._client.now(), incarnation):
            with contextlib.suppress(ValueError, nats.errors.Error):  # headers that nats-py does not send
                await self._stranger.publish(subject, data, headers=headers or None)
        await self._stranger.flush()
        number = next(self._numbers)
        run = await self._client.submit(self._client.app.actors["add"].call(number), key=f"canary-{number}")
        root = self._client.app.names.root
        told = {"Tenure-Key": f"inbox-{number}"}
        await self._stranger.publish(f"{root}.submit.add", b'{"one": %d}' % number, headers=told)
        assert await run.result(timeout=_SECONDS) == number + 1

        async def applied() -> bool:
            status = await self._client.status(f"inbox-{number}")
            return status is not None and status.phase == "succeeded"

        await wait_until(applied, description="a command of the inbox is carried out", timeout=_SECONDS)
        table = self._worker.table
        await wait_until(lambda: len(table) == 0, description="the worker has every slot free", timeout=_SECONDS)
        for errors in (self._worker.metrics.errors, self._supervisor.metrics.errors):
            assert {where: errors[where] for where in ("handler", "keeper", "command") if errors[where]} == {}
        await both_ready(self._worker, self._supervisor)


async def both_ready(worker: Worker, supervisor: Supervisor) -> None:
    await wait_until(lambda: not worker.why_not_ready, description="the worker is ready")
    await wait_until(lambda: not supervisor.why_not_ready, description="the supervisor is ready")


@asynccontextmanager
async def world(url: str, namespace: str) -> AsyncIterator[World]:
    app = app_of(namespace)
    stranger = await nats.connect(url)
    async with app.connect(url) as client, app.worker(url, concurrency=_SLOTS) as worker, app.supervisor(url) as other:
        running = [asyncio.create_task(worker.run()), asyncio.create_task(other.run())]
        try:
            await both_ready(worker, other)
            yield World(client, worker, other, stranger)
        finally:
            worker.stop()
            other.stop()
            await asyncio.gather(*running)
            await stranger.close()


def bear_all(url: str, namespace: str, batches: int, seconds: float = float("inf")) -> int:
    """Everything, and so many batches, or as many as there is time for, upon the same two processes; how many there were.

    Raises what is a fault, with the batch that was last: what came before may be the cause as well.
    """
    end, borne = time.monotonic() + seconds, 0
    with asyncio.Runner() as runner:
        around = world(url, namespace)
        one = runner.run(around.__aenter__())

        @example(deeds=EVERYTHING)
        @given(deeds=BATCHES)
        @settings(max_examples=batches, deadline=None, database=None, phases=[Phase.explicit, Phase.generate])
        def bear(deeds: Deeds) -> None:
            nonlocal borne
            if time.monotonic() < end:
                runner.run(one.bear(deeds))
                borne += 1

        try:
            while True:
                bear()
                if seconds == float("inf") or time.monotonic() >= end:
                    return borne
        finally:
            runner.run(around.__aexit__(None, None, None))


def fuzz(seconds: int) -> None:
    """``make fuzz``: a world of its own for so long."""
    with nats_server() as url:
        print(f"{bear_all(url, 'fuzzed', 50, seconds)} batches were borne", flush=True)
