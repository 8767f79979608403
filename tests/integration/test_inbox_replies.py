"""Where a rejected command of the inbox is answered: its PubAck came long before, on the reply subject of the publish."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from nats.aio.msg import Msg

from tenure import App, Client
from tests.conftest import Supervisors
from tests.strangers import Stranger, phase, rejected
from tests.support import wait_until


@pytest.fixture
def app(open_app: App) -> App:
    return open_app


async def heard_by(stranger: Stranger, subject: str) -> list[tuple[str, Any]]:
    """What is published there from now on."""
    heard: list[tuple[str, Any]] = []

    async def on_message(msg: Msg) -> None:
        heard.append((msg.subject, json.loads(msg.data)))

    await stranger.client.subscribe(subject, cb=on_message)
    await stranger.client.flush()
    return heard


async def test_a_rejected_command_is_told_so_where_it_says(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    """One that is accepted needs no answer; one that names no place gets none."""
    heard = await heard_by(stranger, "_INBOX.me.>")
    async with supervisors.run(app):
        await stranger.send("submit.add", {"one": 1}, Tenure_Key="fine", Tenure_Reply="_INBOX.me.0")
        await phase(client, "fine")
        await stranger.send("submit.add", {"one": "x"}, Tenure_Key="k", Tenure_Reply="_INBOX.me.1")
        await stranger.send("cancel", None, tenure_reply="_INBOX.me.2")
        await stranger.send("submit.add", {"one": "x"}, Tenure_Key="k")
        letters = await rejected(client, 3)
        await wait_until(lambda: len(heard) >= 2, description="two answers")
    told = dict(heard)
    assert {subject: answer["error"] for subject, answer in told.items()} == {
        "_INBOX.me.1": "arguments",
        "_INBOX.me.2": "key",
    }
    assert {answer["text"] for answer in told.values()} <= {letter.text for letter in letters}
    assert "$.one" in told["_INBOX.me.1"]["text"]


@pytest.mark.parametrize(
    "where", ["tenure.{}.cancel", "$JS.API.INFO", "$KV.x.y", "_INBOX", "_INBOX.*", "_INBOX.a b", ""]
)
async def test_no_answer_goes_among_subjects_that_mean_something(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors, where: str
) -> None:
    """The header is a mistake: the command, which is fine but for it, is rejected and kept; nothing is published there."""
    subject = where.format(app.namespace)
    heard = await heard_by(stranger, "$JS.API.INFO")
    async with supervisors.run(app):
        headers = {"Tenure-Key": "k", "Tenure-Reply": subject}
        await stranger.raw("submit.add", b'{"one": 1}', headers)
        (letter,) = await rejected(client)
        assert (letter.reason, letter.headers) == ("header", headers)
        assert "Tenure-Reply" in letter.text
        await asyncio.sleep(0.1)  # paused: an answer would be there by now
    assert heard == []
    assert await client.status("k") is None
    assert await client.dead.rejected() == [letter]
