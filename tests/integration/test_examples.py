"""The examples that no other test runs: schedules, a program without Tenure, priorities and weights."""

from __future__ import annotations

import asyncio
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import nats
import pytest

from actors import nightly, stranger, triage
from tenure import App
from tenure.testing import memory
from tests.conftest import Supervisors
from tests.strangers import phase

BERLIN = ZoneInfo("Europe/Berlin")


def packed(folder: Path) -> list[Path]:
    """Both archives, and that there is nothing else."""
    first, second, notes = sorted(folder.iterdir(), key=lambda path: path.name.rpartition("-")[2])
    assert notes.name == "notes"
    return [first, second]


async def test_nightly_packs_a_folder_once_a_night_also_when_the_clock_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the 24th of October at noon on, through the night in which half past two comes twice."""
    notes = tmp_path / "notes"
    (notes / "deep").mkdir(parents=True)
    (notes / "deep" / "a.txt").write_text("a", encoding="utf-8")
    monkeypatch.setenv("NIGHTLY_FOLDER", str(notes))
    async with memory(nightly.app, start=datetime(2026, 10, 24, 12, tzinfo=BERLIN)) as client:
        dues = {one.key: one.due for one in await client.scheduled()}
        assert dues["pack"] == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
        await asyncio.sleep(16 * 3_600.0)  # paused: in virtual time
        dues = {one.key: one.due for one in await client.scheduled()}
        assert dues["pack"] == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
        looked = await client.status("look_at_disk")
        assert looked is not None
        assert looked.generation >= 16 * 4
        again = await client.trigger("pack")
        assert (await again.wait()).phase == "succeeded"
    for number, archive in enumerate(packed(tmp_path), 1):
        assert archive.name.endswith(f"-{number}.tar.gz")
        with tarfile.open(archive) as opened:
            assert opened.getnames() == ["notes/deep", "notes/deep/a.txt"]


async def test_a_stranger_submits_is_answered_and_is_told_of_a_rejection(
    open_app: App, nats_server: str, supervisors: Supervisors, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_app.connect(nats_server) as client, supervisors.run(open_app):
        async with await nats.connect(nats_server) as plain:
            told = await stranger.publish(plain, open_app.namespace, "add", {"one": 1}, "fine")
            assert await phase(client, "fine") == "queued"
            assert not told.done()
            told = await stranger.publish(plain, open_app.namespace, "add", {"one": "x"}, "bad")
            with pytest.raises(stranger.Rejected, match=r"arguments: .*\$\.one"):
                async with asyncio.timeout(10):
                    await told
            with pytest.raises(stranger.Rejected, match="unknown_actor"):
                await stranger.ask(plain, open_app.namespace, "nobody", {}, "bad")
        await stranger.main(open_app.namespace, "add", '{"one": 1}', "asked", nats_server)
    assert '"key": "asked", "generation": 1' in capsys.readouterr().out


async def test_triage_does_what_is_urgent_first_and_all_the_rest() -> None:
    async with memory(triage.app, workers=0) as client:
        for number in range(3):
            await client.submit(triage.digest.call(number))
            await client.submit(triage.answer.call(f"letter {number}"))
            await client.submit(triage.file_away.call(f"letter {number}"))
        await client.submit(triage.page.call("Ada"))
        async with triage.app.worker(client.server.url, queues={"desk": 3, "archive": 1}, concurrency=1) as worker:
            await worker.run_until_idle()
    assert len(triage.done) == 10
    assert triage.done.index("page Ada") < 4
    assert triage.done.index("digest 2") > triage.done.index("answer letter 1")
