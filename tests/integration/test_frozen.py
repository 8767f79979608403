"""What is really sent and stored goes by the frozen names: every message of a busy namespace, taken from a real server."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections import defaultdict
from contextlib import AsyncExitStack
from datetime import timedelta

import nats
import pytest
from msgspec.structs import replace
from nats.aio.msg import Msg

from tenure import App, Context, Fail, Limit, RateLimit
from tests.conftest import Supervisors, Workers
from tests.frozen import FROZEN
from tests.strangers import Stranger, phase, run_of
from tests.support import FAST, wait_until

CAS, TTL, ROLLUP, STATE = "Nats-Expected-Last-Subject-Sequence", "Nats-TTL", "Nats-Rollup", "Tenure-State"
REPEATED = {"Nats-Last-Sequence", "Nats-Sequence", "Nats-Stream", "Nats-Subject", "Nats-Time-Stamp"}
REMOVED = {"KV-Operation", ROLLUP, TTL}
# By subject: the headers of what is sent there, and which of the frozen forms it has.
SENT: dict[str, tuple[set[str], str]] = {
    "$KV.TENURE_NS.KEY": ({CAS, TTL, STATE}, "core.records.Record"),
    "$KV.TENURE_NS.limit.hold": ({CAS, *REMOVED}, "core.permits.Entry"),
    "$KV.TENURE_NS.rate.rated=60000000us": ({CAS, TTL}, "core.rates.Entry"),
    "$KV.TENURE_NS.switch.board": ({CAS}, "core.switches.Board"),
    "$KV.TENURE_NS_SESSIONS.progress.KEY.ID": ({TTL}, "core.sessions.Progress"),
    "$KV.TENURE_NS_SESSIONS.session.ID": ({CAS, TTL}, "core.sessions.Session"),
    "$KV.TENURE_NS_SESSIONS.stop.ID.ID.ATTEMPT": ({CAS, TTL}, "core.sessions.StopSignal"),
    "$O.TENURE_NS_BLOBS.C.CHUNK": (set(), ""),
    "$O.TENURE_NS_BLOBS.M.ID.ATTEMPT.result": ({CAS, ROLLUP}, ""),
    "$O.TENURE_NS_BLOBS.M.ID.args": ({CAS, ROLLUP}, ""),
    "tenure.NS.api.status": ({"Tenure-Key"}, ""),
    "tenure.NS.cancel": ({"Tenure-Key"}, ""),
    "tenure.NS.dead.end.KEY.ID": ({CAS}, "core.dead.DeadLetter"),
    "tenure.NS.dead.rejected.ID": ({CAS}, "core.dead.Rejected"),
    "tenure.NS.event.KEY": ({CAS, TTL, STATE, *REPEATED}, "core.records.Record"),
    "tenure.NS.event.limit.hold": ({CAS, *REMOVED, *REPEATED}, "core.permits.Entry"),
    "tenure.NS.event.rate.rated=60000000us": ({CAS, TTL, *REPEATED}, "core.rates.Entry"),
    "tenure.NS.event.switch.board": ({CAS, *REPEATED}, "core.switches.Board"),
    "tenure.NS.note.KEY.ID": ({TTL, *REPEATED}, "core.sessions.Progress"),
    "tenure.NS.park.hold.KEY.ID": ({"Tenure-Lane"}, ""),
    "tenure.NS.submit.end": ({"Nats-Msg-Id", "Tenure-Key"}, ""),
    "tenure.NS.submit.nobody": ({"Tenure-Key"}, ""),
    "tenure.NS.timer.KEY.ID.ATTEMPT": ({"Nats-Schedule", "Nats-Schedule-Target"}, "nats.work._Head"),
    "tenure.NS.work.default.high.KEY.ID": (set(), "nats.work._Head"),
    "tenure.NS.work.default.normal.KEY.ID": (set(), "nats.work._Head"),
}
SOMETIMES = {"tenure.NS.refused.KEY": (set[str](), "core.history.Refusal")}
"""It depends on who was quicker."""


@pytest.fixture
def busy(namespace: str) -> App:
    app = App(
        namespace, config=replace(FAST, command_patience_seconds=0.1, inline_limit_bytes=2_000, wake_limit_bytes=2_000)
    )

    @app.actor
    async def end(ctx: Context, text: str = "") -> str:
        if text == "bad":
            raise Fail("no use")
        if text == "spawn":
            ctx.spawn(app.actors["end"].call("x" * 3_000), key="spawned")
        return text

    @app.actor(limits=[Limit(1)])
    async def hold(ctx: Context) -> None:
        await ctx.progress(1, 2, "half")
        await ctx.stopping.wait()

    @app.actor(limits=[RateLimit(1, timedelta(minutes=1))])
    async def rated() -> None: ...

    return app


class Tap:
    """All that passes on the server, by subjects in which a key, an id and a number are only that."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.headers: dict[str, set[str]] = defaultdict(set)
        self.fields: dict[str, set[str]] = defaultdict(set)

    async def took(self, msg: Msg) -> None:
        subject = self.plain(msg.subject)
        self.headers[subject] |= set(msg.headers or ())
        with contextlib.suppress(ValueError):  # a chunk of a blob, or nothing at all
            said = json.loads(msg.data.partition(b"\n")[0])
            self.fields[subject] |= set(said) if isinstance(said, dict) else set()

    def plain(self, subject: str) -> str:
        subject = subject.replace(self.namespace, "NS")
        blob = re.search(r"BLOBS\.M\.(.*)", subject)
        if blob:
            subject = subject.replace(blob[1], base64.urlsafe_b64decode(blob[1]).decode())
        for pattern, word in (
            (r"BLOBS\.C\..*", "BLOBS.C.CHUNK"),
            (r"\.(k-\d|spawned)(?=\.|\Z)", ".KEY"),
            (r"[0-9A-HJKMNP-TV-Z]{26}", "ID"),
            (r"(?<=ID\.)\d+", "ATTEMPT"),
        ):
            subject = re.sub(pattern, word, subject)
        return subject


async def test_all_that_is_sent_has_frozen_names(
    busy: App, namespace: str, nats_server: str, workers: Workers, supervisors: Supervisors
) -> None:
    tap = Tap(namespace)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(busy.connect(nats_server))
        listener = await nats.connect(nats_server)
        stack.push_async_callback(listener.drain)
        for subject in (
            f"tenure.{namespace}.>",
            f"$KV.TENURE_{namespace}.>",
            f"$KV.TENURE_{namespace}_SESSIONS.>",
            "$O.>",
        ):
            await listener.subscribe(subject, cb=tap.took)
        await listener.flush()
        await stack.enter_async_context(supervisors.run(busy))
        await stack.enter_async_context(workers.run(busy))
        end, hold = busy.actors["end"], busy.actors["hold"]
        spawned = await client.submit(end.call("spawn"), key="k-1")
        bad = await client.submit(end.call("bad"), key="k-2")
        await client.submit(end.call("x"), key="k-3", delay=60)
        held = await client.submit(hold.call(), key="k-4")
        await phase(client, "k-4", "running")
        waits = await client.submit(hold.call(), key="k-5")
        await client.submit(busy.actors["rated"].call(), key="k-6")
        stranger = Stranger(listener, namespace)
        await stranger.send("submit.end", {"text": "x"}, Tenure_Key="k-7", Nats_Msg_Id="1")
        await stranger.send("submit.nobody", {}, Tenure_Key="k-8")
        await stranger.send("cancel", {"reason": "enough"}, Tenure_Key="k-3")
        await listener.request(f"tenure.{namespace}.api.status", b"", headers={"Tenure-Key": "k-1"})
        await client.pause(actor="rated", duration=60)
        await spawned.wait(timeout=10)
        await bad.wait(timeout=10)
        await client.run("spawned").wait(timeout=10)
        await (await run_of(client, "k-7")).wait(timeout=10)
        await wait_until(
            lambda: "tenure.NS.park.hold.KEY.ID" in tap.fields, description="one waits for the other's place"
        )
        await held.cancel(reason="enough")
        await held.wait(timeout=10)
        await waits.cancel()
        await waits.wait(timeout=10)
        await wait_until(lambda: "tenure.NS.dead.rejected.ID" in tap.fields, description="the unknown actor is told")
        limit = "$KV.TENURE_NS.limit.hold"
        await wait_until(lambda: "KV-Operation" in tap.headers[limit], description="the limit is in use no more")
    assert {subject: headers for subject, headers in tap.headers.items() if subject not in SOMETIMES} == {
        subject: headers for subject, (headers, _) in SENT.items()
    }
    forms = json.loads(FROZEN.read_text(encoding="utf-8"))["forms"]
    for subject, fields in tap.fields.items():
        form = (SENT | SOMETIMES)[subject][1]
        if form:
            known = {line.partition(":")[0]: " = " in line for line in forms[form]}
            assert fields <= known.keys(), subject
            assert {name for name, may_be_left_out in known.items() if not may_be_left_out} <= fields, subject
