"""What a pause or a block is about: counted when it is made, and before, with a dry run."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenure import App, Client, Context
from tenure.core.records import Blob, encode, state_of
from tenure.nats.blobs import Blobs
from tenure.nats.runs import Runs
from tenure.nats.scan import STATE
from tests.conftest import Workers
from tests.support import FAST, wait_until


@pytest.mark.parametrize(
    ("how", "given", "phases"),
    [
        ("pause", {"actor": "read"}, {"queued": 2, "scheduled": 1}),
        ("pause", {"queue": "slow"}, {"queued": 3, "scheduled": 1, "running": 1}),
        ("pause", {"actor": "nobody"}, {}),
        ("block", {"pattern": "doc-*"}, {"queued": 1, "scheduled": 1, "running": 1}),
        ("block", {"actor": "read", "args": {"page": 1}}, {"queued": 1, "scheduled": 1}),
    ],
    ids=["actor", "queue", "nobody", "keys", "arguments"],
)
async def test_live_runs_are_counted_by_phase_and_a_dry_run_changes_nothing(
    app: App, client: Client, workers: Workers, how: str, given: dict[str, Any], phases: dict[str, int]
) -> None:
    @app.actor(queue="slow")
    async def read(page: int) -> None: ...

    @app.actor(queue="slow")
    async def hold(ctx: Context) -> None:
        await ctx.stopping.wait()

    async with workers.run(app, concurrency=1):
        busy = await client.submit(hold.call(), key="doc-busy")

        async def runs() -> bool:
            status = await busy.status()
            return status is not None and status.phase == "running"

        await wait_until(runs, description="the one slot is taken")
        await client.submit(read.call(1), key="doc-1")
        await client.submit(read.call(2), key="page-2")
        await client.submit(read.call(1), key="doc-later", delay=3_600.0)
        await client.submit(hold.call(), key="other")
        over = await client.submit(read.call(1), key="doc-over", delay=3_600.0)
        await over.cancel()
        act = client.pause if how == "pause" else client.block
        dry = await act(**given, dry_run=True)
        assert (dry.phases, dry.waiting, dry.dry_run, dry.id) == (phases, phases.get("queued", 0), True, "")
        assert await client.blocks() == []
        made = await act(**given)
        assert (made.phases, made.waiting, made.dry_run) == (phases, phases.get("queued", 0), False)
        (listed,) = await client.blocks()
        assert listed.id == made.id
        if "queue" in given:
            assert listed.waiting == 3
        await busy.cancel()


@pytest.mark.parametrize("how", ["pause", "block"])
async def test_a_pause_is_told_in_time_though_its_runs_cannot_be_counted(
    app: App, nats_server: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is stored before they are; a pass over very many keys takes no longer than a call may."""

    async def endless(*_args: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Runs, "scan", endless)
    async with App(app.namespace, config=replace(FAST, patience_seconds=0.3)).connect(nats_server) as client:
        made = await (client.pause(actor="read") if how == "pause" else client.block("doc-*"))
        assert (made.phases, made.waiting) == (None, None)
        assert [hold.id for hold in await client.blocks()] == [made.id]


async def test_a_record_of_a_newer_tenure_stands_in_the_way_of_no_block(app: App, client: Client) -> None:
    """In a rolling upgrade: of that run nobody here can say what it is given, so it is not counted."""

    @app.actor
    async def read(page: int) -> None: ...

    for key in ("old", "new"):
        await client.submit(read.call(1), key=key)
    found = await client.stores.runs.read("new")
    assert found.record is not None
    newer = msgspec.json.encode(msgspec.json.decode(encode(found.record)) | {"schema": 99})
    await client.stores.conn.put(app.names.record("new"), newer, {STATE: state_of(found.record)})
    assert (await client.block(actor="read", args={"page": 1})).phases == {"queued": 1}


async def test_of_large_arguments_two_are_in_memory_at_once(
    app: App, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may take 32 MiB, and a block is about as many runs as there are: 128 at once took four gigabytes."""
    small = App(app.namespace, config=replace(FAST, inline_limit_bytes=1_000, wake_limit_bytes=1_000))

    @small.actor
    async def read(page: int, text: str = "") -> None: ...

    get, now, most = Blobs.get, 0, 0

    async def counted(self: Blobs, blob: Blob) -> bytes:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        try:
            return await get(self, blob)
        finally:
            now -= 1

    monkeypatch.setattr(Blobs, "get", counted)
    async with small.connect(nats_server) as client:
        await client.submit_many([(read.call(i % 2, "x" * 2_000 if i % 3 else ""), f"k{i}") for i in range(24)])
        made = await client.block(actor="read", args={"page": 1})
    assert made.phases == {"queued": 12}
    assert most == 2
