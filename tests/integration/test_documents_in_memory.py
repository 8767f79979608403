"""How to test an application: the actors of ``actors/documents.py``, with no server and with no waiting.

Everything runs as in production - client, worker, supervisor, retries, timers - over a server in memory and in virtual time.
"""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from actors import documents
from actors.documents import app, extract, refine
from actors.reading import open_document
from tenure import App, RunFailed
from tenure.testing import MemoryClient, memory

NIGHT = datetime(2030, 1, 1, 3, 0, tzinfo=UTC)


@pytest.fixture
def tenure_app() -> App:
    """What the fixture ``tenure_client`` runs."""
    return app


@pytest.fixture
def report(tmp_path: Path) -> str:
    path = tmp_path / "report.txt"
    path.write_text("Otters sleep holding hands. Otters never lie about it.", encoding="utf-8")
    return str(path)


async def test_a_document_is_extracted_and_then_refined(report: str):
    async with memory(app) as client:
        run = await client.submit(extract.call(report), key="report")

        extracted = await run.result()
        assert extracted.words == 9

        refined = await client.run("report/refined").result()  # spawned with the outcome, under a key of its own
        assert refined.path == report
        assert ("otters", 2) in refined.top


async def test_a_document_is_read_tomorrow(report: str, tenure_client: MemoryClient):
    run = await tenure_client.submit(extract.call(report), key="report", delay=timedelta(days=1))
    assert (await run.result()).words == 9


async def test_a_document_is_read_at_night(report: str):
    async with memory(app, start=NIGHT - timedelta(hours=18)) as client:
        run = await client.submit(extract.call(report), key="report", at=NIGHT)

        (waiting,) = await client.scheduled()
        assert waiting.actor == "extract"
        assert waiting.args == {"path": report, "pause": 0.0}
        assert waiting.due == NIGHT

        await client.advance(timedelta(hours=17))
        status = await run.status()
        assert status is not None
        assert status.phase == "scheduled"

        await client.advance(timedelta(hours=1, seconds=1))
        assert (await run.wait(timeout=0)).phase == "succeeded"


async def test_a_disk_that_fails_twice_costs_two_retries(report: str, monkeypatch: pytest.MonkeyPatch):
    opened = 0

    def shaky(path: str) -> object:
        nonlocal opened
        opened += 1
        if opened <= 2:
            raise OSError(errno.EIO, "the disk is tired")
        return open_document(path)

    monkeypatch.setattr(documents, "open_document", shaky)
    async with memory(app) as client:
        began = client.now()
        run = await client.submit(extract.call(report), key="report")
        assert (await run.result()).words == 9
        assert (await run.wait()).attempt == 3
        assert client.now() - began == pytest.approx(0.5 + 1.0, rel=0.25)  # its backoff, with a jitter of 20 %


async def test_a_document_that_is_gone_is_not_tried_again(tmp_path: Path):
    async with memory(app) as client:
        run = await client.submit(extract.call(str(tmp_path / "nowhere.pdf")), key="gone")
        with pytest.raises(RunFailed, match=r"nowhere\.pdf"):
            await run.result()
        assert (await run.wait()).attempt == 1
        assert await client.scheduled() == []
        assert [letter.key for letter in await client.dead.list()] == ["gone"]


async def test_a_newer_submit_of_the_same_document_takes_its_place(report: str):
    async with memory(app) as client:
        slow = await client.submit(extract.call(report, pause=120.0), key="report")
        await client.advance(60)

        run = await client.replace(extract.call(report), key="report")
        assert run.generation == slow.generation + 1
        assert (await run.result()).words == 9

        await client.until_idle()
        assert (await client.run("report/refined").result()).path == report


async def test_what_a_run_spawns_can_be_seen_before_anybody_works():
    async with memory(app, workers=0) as client:
        await client.submit(extract.call("a.txt"), key="a", delay=60)
        await client.submit(extract.call("b.txt"), key="b")
        assert [(run.key, run.actor) for run in await client.scheduled()] == [("b", "extract"), ("a", "extract")]
    assert {extract.name, refine.name} <= set(app.actors)
