"""The example of holding back, cancelling many and triggering: real letters in a folder."""

from __future__ import annotations

import email
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from actors import letters
from actors.letters import app, recall, send
from tenure import CancelledMany, Where
from tenure.testing import memory

SUBSCRIBERS = ("ada@example.com", "grace@example.com", "mary@example.org")
SUNDAY = datetime(2030, 1, 6, 12, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LETTERS_FOLDER", str(tmp_path))
    (tmp_path / "subscribers.txt").write_text("\n".join(SUBSCRIBERS), encoding="utf-8")
    (tmp_path / "issue-7.txt").write_text("Tenure is out.", encoding="utf-8")
    return tmp_path


def sent(folder: Path) -> list[str]:
    return sorted(email.message_from_bytes(file.read_bytes())["To"] for file in (folder / "new").glob("*"))


async def test_a_trigger_sends_an_issue_now_and_nobody_gets_it_twice(folder: Path) -> None:
    async with memory(app, start=SUNDAY) as client:
        run = await client.trigger("issue")
        assert await run.result() == 3
        await client.until_idle()
        assert client.now() < SUNDAY.timestamp() + 60
        assert sent(folder) == sorted(SUBSCRIBERS)
        for file in (folder / "new").iterdir():
            file.unlink()  # the mail server has taken them
        await client.advance(86_400.0)  # Monday at eight is over
        assert (await client.run("issue")).generation == run.generation + 2
        assert sent(folder) == []


async def test_what_is_paused_and_blocked_waits_and_goes_out_later(folder: Path) -> None:
    async with memory(app, start=SUNDAY) as client:
        await client.pause(queue="letters", duration=1_800.0, reason="the mail server is down")
        await client.trigger("issue")
        await client.advance(60)
        await client.block("issue-*@example.org", reason="they do not take our mail")
        assert [str(hold) for hold in await client.blocks()] == ["queue letters", "keys issue-*@example.org"]
        assert sent(folder) == []
        await client.resume(queue="letters")
        await client.advance(60)
        assert sent(folder) == ["ada@example.com", "grace@example.com"]
        assert str(await client.held_by("issue-7/mary@example.org")) == "keys issue-*@example.org"
        await client.unblock("issue-*@example.org")
        await client.until_idle()
        assert sent(folder) == sorted(SUBSCRIBERS)


async def test_older_issues_are_blocked_by_their_number(folder: Path) -> None:
    (folder / "issue-6.txt").write_text("Tenure is not out.", encoding="utf-8")
    older = [Where("number", "<", 7)]
    async with memory(app, start=SUNDAY) as client:
        await client.block(actor="send", where=older, reason="out of date")
        for number in (6, 7):
            await client.submit(send.call(number, "ada@example.com"), key=f"issue-{number}/ada@example.com")
        await client.advance(60)
        assert [file.name for file in (folder / "new").iterdir()] == ["issue-7-ada@example.com"]
        assert await client.unblock(actor="send", where=older) is not None
        await client.until_idle()
        assert len(sent(folder)) == 2


async def test_a_recalled_issue_is_sent_to_nobody_more_and_the_next_one_to_all(folder: Path) -> None:
    async with memory(app, start=SUNDAY) as client:
        await client.pause(queue="letters")
        await client.trigger("issue")
        await client.advance(60)
        assert (await client.cancel_many("issue-7/*", dry_run=True)).phases == {"queued": 3}
        done = await recall(client, 7, "the wrong text")
        assert (done.matched, done.cancelled) == (3, 3)
        assert [str(hold) for hold in await client.blocks()] == ["queue letters"]  # a pause of somebody else's stays
        await client.resume(queue="letters")
        (folder / "issue-8.txt").write_text("The right text.", encoding="utf-8")
        await client.trigger("issue")
        await client.until_idle()
        status = await client.status("issue-7/ada@example.com")
        assert status is not None
        assert (status.phase, status.reason) == ("cancelled", "the wrong text")
    assert sorted(file.name for file in (folder / "new").iterdir()) == [f"issue-8-{one}" for one in sorted(SUBSCRIBERS)]


async def test_no_letter_starts_while_an_issue_is_recalled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory(app, start=SUNDAY) as client:
        held: list[str] = []
        cancel_many = client.cancel_many

        async def looking(*args: Any, **how: Any) -> CancelledMany:
            held.extend(map(str, await client.blocks()))
            return await cancel_many(*args, **how)

        monkeypatch.setattr(client, "cancel_many", looking)
        assert (await recall(client, 7, "the wrong text")).matched == 0
        assert held == ["keys issue-7/*"]
        assert await client.blocks() == []


async def test_no_issue_is_no_letter(folder: Path) -> None:
    (folder / "issue-7.txt").unlink()
    async with memory(letters.app, start=SUNDAY) as client:
        assert await (await client.trigger("issue")).result() == 0
