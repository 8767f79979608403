"""What people do to hold runs back, and to cancel many, on the command line."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tenure import App, CancelledMany, Client
from tenure.core.errors import Unavailable
from tenure.core.records import encode, state_of
from tenure.nats.runs import Runs
from tenure.nats.scan import STATE, OnHeader
from tests.e2e.commands import Cli


def test_an_actor_is_paused_and_resumed(own: Cli) -> None:
    """By its name alone; what is submitted meanwhile waits, and is told by `blocks`."""
    with own.worker("--with-supervisor"):
        paused = own.fast_json("pause", "say", "--reason", "a repair", "--for", "1h", "--app", "tasks:app")
        assert (paused["kind"], paused["name"], paused["reason"]) == ("actor", "say", "a repair")
        own.fast("submit", "tasks:app", "say", "--key", "one", "--arg", "text=x")
        own.fast("submit", "tasks:app", "greet", "--key", "two", "--arg", "name=x", "--wait")
        deadline = time.monotonic() + 20.0
        while (told := own.fast_json("blocks")[0])["waiting"] != 1:
            assert time.monotonic() < deadline, "the run was not parked"
        assert (told["id"], told["since"], told["until"]) == (paused["id"], paused["since"], paused["until"])
        shown = own.fast("blocks")[0]
        assert "paused" in shown
        assert "actor say" in shown
        assert "a repair" in shown
        one = own.fast_json("show", "one")
        assert (one["phase"], one["held_by"]["name"], one["held_by"]["reason"]) == ("queued", "say", "a repair")
        assert re.search(
            r"held by     actor say, paused until [\d :-]{8,16} \(a repair\)\n", own.fast("show", "one")[0]
        )
        triggered = own.fast_json("trigger", "one", code=1)
        assert (triggered["triggered"], triggered["held_by"]["name"]) == (False, "say")
        assert "it waits for actor say" in own.fast("trigger", "one", code=1)[1]
        assert own.fast_json("resume", "say")["id"] == paused["id"]
        assert own.fast("result", "one", "--timeout", "10s")[0].strip() == "x"
        assert own.fast_json("blocks") == []
        assert "held_by" not in own.fast_json("show", "one")


def test_a_queue_is_paused_until_a_time(own: Cli) -> None:
    own.fast("setup", "tasks:app")
    until = f"{datetime.now(UTC).year + 2}-01-01T00:00:00Z"
    paused = own.fast_json("pause", "mail", "--queue", "--until", until)
    assert (paused["kind"], paused["name"], paused["until"]) == ("queue", "mail", until)
    assert "queue mail" in own.fast("blocks")[0]
    assert own.fast_json("resume", "mail")["id"] == paused["id"]
    assert "not paused" in own.fast("resume", "mail", code=1)[1]


def test_a_name_that_may_mean_two_things_must_be_told_apart(own: Cli) -> None:
    own.fast("setup", "tasks:app")
    assert "no queue and no actor 'nobody'" in own.fast("pause", "nobody", code=2)[1]
    own.fast("pause", "nobody", "--queue")
    own.fast("pause", "nobody", "--actor")
    assert "say --queue or --actor" in own.fast("resume", "nobody", code=2)[1]
    own.fast("resume", "nobody", "--actor")
    own.fast("resume", "nobody")
    assert own.fast_json("blocks") == []


def test_keys_and_arguments_are_blocked_and_unblocked(own: Cli) -> None:
    own.fast("setup", "tasks:app")
    own.fast("block", "doc-*", "--reason", "broken")
    assert "so its name and text were not checked" in own.fast("block", "--actor", "say", "--arg", "text=5")[1]
    keys, arguments = own.fast_json("blocks")
    assert (keys["kind"], keys["pattern"], keys["reason"]) == ("keys", "doc-*", "broken")
    assert (arguments["kind"], arguments["name"], arguments["args"]) == ("arguments", "say", {"text": ["5", '"5"']})
    own.fast("unblock", "doc-*")
    own.fast("unblock", "--actor", "say", "--arg", "text=5")
    assert own.fast_json("blocks") == []
    assert "not blocked" in own.fast("unblock", "doc-*", code=1)[1]
    assert own.fast_json("block", "--app", "tasks:app", "--actor", "say", "--arg", "text=5")["args"] == {
        "text": ['"5"']
    }


def test_arguments_are_blocked_by_comparison(own: Cli) -> None:
    """A word that looks like a number is one, unless the actor's signature wants a text."""
    own.fast("submit", "tasks:app", "greet", "--key", "g", "--arg", "name=x", "--arg", "times=3", "--delay", "1h")
    what = ("--actor", "greet", "--where", "times >= 3", "--where", "name between a and y")
    assert own.fast_json("block", *what, "--dry-run")["phases"] == {"scheduled": 1}
    assert 'actor greet with name <= "y" and name >= "a", times >= 3' in own.fast("block", *what)[0]
    assert own.fast_json("blocks")[0]["args"] == {"name": ['<="y"', '>="a"'], "times": [">=3"]}
    assert own.fast_json("block", "--actor", "greet", "--where", "times>3", "--dry-run")["phases"] == {}
    own.fast("unblock", *what)
    assert own.fast_json("blocks") == []
    typed = own.fast_json("block", "--app", "tasks:app", "--actor", "greet", "--where", "name<5", "--where", "times!=7")
    assert typed["args"] == {"name": ['<"5"'], "times": ['!="7"', "!=7"]}


def test_an_argument_that_no_stored_run_has_is_pointed_out(own: Cli) -> None:
    own.fast("submit", "tasks:app", "greet", "--key", "g", "--arg", "name=x", "--delay", "1h")
    complaint = own.fast("block", "--actor", "greet", "--arg", "nmae=x")[1]
    assert "no run of 'greet' that is stored has nmae" in complaint
    assert "they have at, name, times" in complaint
    assert own.fast("block", "--actor", "greet", "--arg", "name=x")[1] == ""


@pytest.mark.parametrize("gone", ["newer", "blob"])
def test_a_stored_run_that_cannot_be_read_stands_in_the_way_of_no_block(own: Cli, gone: str) -> None:
    """The names of arguments are looked up in others: one was written by a newer Tenure, or its arguments are gone."""
    for key, text in (("readable", "x"), ("other", "x" * 200_000)):
        own.fast("submit", "tasks:app", "say", "--key", key, "--arg", f"text={text}", "--delay", "1h")

    async def spoil() -> None:
        async with App(own.namespace).connect(own.url) as client:
            stores = client.stores
            record = (await stores.runs.read("other")).record
            assert record is not None
            assert record.task.blob is not None
            if gone == "blob":
                async for blob in stores.blobs.kept(stores.runs.patience()):
                    await stores.blobs.remove(blob, stores.runs.patience())
            else:
                newer = msgspec.json.encode(msgspec.json.decode(encode(record)) | {"schema": 99})
                await stores.conn.put(stores.names.record("other"), newer, {STATE: state_of(record)})

    asyncio.run(spoil())
    assert own.fast("block", "--actor", "say", "--arg", "text=x")[1] == ""
    assert "they have text" in own.fast("block", "--actor", "say", "--arg", "txet=x")[1]
    assert len(own.fast_json("blocks")) == 2


def test_a_pause_and_a_block_are_made_though_no_header_can_be_read(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is said what is meant, or the app tells; whom it is about, and whether an argument exists, is not told then."""
    own.fast("setup", "tasks:app")

    async def cut_off(*_args: object) -> None:
        raise Unavailable("the server is away")

    monkeypatch.setattr(Runs, "scan", cut_off)
    for made in (("pause", "mail", "--queue"), ("pause", "nobody", "--actor"), ("pause", "say", "--app", "tasks:app")):
        assert own.fast(*made)[1] == ""
    assert "so text was not checked" in own.fast("block", "--actor", "say", "--arg", "text=x")[1]
    assert own.fast("block", "doc-*")[1] == ""
    assert len(own.fast_json("blocks")) == 5


def test_many_are_cancelled_with_counts_and_a_dry_run(own: Cli) -> None:
    for i in range(5):
        own.fast("submit", "tasks:app", "say", "--key", f"doc-{i}", "--arg", "text=x", "--delay", "1h")
    own.fast("submit", "tasks:app", "say", "--key", "other", "--arg", "text=x")
    dry = own.fast_json("cancel", "--pattern", "doc-*", "--dry-run")
    assert (dry["matched"], dry["phases"], dry["cancelled"]) == (5, {"scheduled": 5}, 0)
    assert "would cancel  5 (5 scheduled)" in own.fast("cancel", "--pattern", "doc-*", "--dry-run")[0]
    told = own.fast("cancel", "--pattern", "doc-[0-3]", "--reason", "no more")[0]
    assert "matched    4 (4 scheduled)" in told
    assert "cancelled  4" in told
    assert own.fast_json("show", "doc-3")["reason"] == "no more"
    assert own.fast_json("cancel", "--actor", "say", "--phase", "scheduled")["cancelled"] == 1
    assert own.fast_json("show", "other")["phase"] == "queued"
    assert own.fast_json("cancel", "other")["outcome"] == "cancelled"
    assert "say --pattern 'doc-*'" in own.fast("cancel", "doc-*", code=2)[1]


def test_a_cancel_of_many_whose_server_goes_away_says_how_far_it_came_and_what_to_do(
    own: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it ends soon is tested with a server that is killed (``test_bulk_without_server``)."""
    own.fast("setup", "tasks:app")
    left = "the server stopped answering: 60 runs were not tried; do it again for the rest"

    async def cancel_many(*_args: object, **_options: object) -> CancelledMany:
        return CancelledMany(matched=100, phases={"queued": 100}, cancelled=30, failed=70, untried=60, problems=(left,))

    monkeypatch.setattr(Client, "cancel_many", cancel_many)
    said, complaint = own.fast("cancel", "--pattern", "doc-*", code=3)
    assert "matched    100 (100 queued)" in said
    assert "cancelled  30" in said
    assert "failed     70" in said
    assert "untried    60" in said
    assert complaint == f"tenure: {left}\n"


def test_keys_that_change_while_they_are_listed_are_listed_once(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over all headers meets them again: as they were, and as they are."""
    own.fast("submit", "tasks:app", "say", "--key", "a", "--arg", "text=x", "--delay", "1h")
    own.fast("submit", "tasks:app", "say", "--key", "b", "--arg", "text=x", "--delay", "1h")
    scan = Runs.scan

    async def twice(self: Runs, on_header: OnHeader, *args: Any) -> None:
        await scan(self, on_header, *args)
        await scan(self, on_header, *args)

    monkeypatch.setattr(Runs, "scan", twice)
    assert [row["key"] for row in own.fast_json("ls")] == ["a", "b"]


def test_a_pause_and_a_block_count_whom_they_are_about_and_a_dry_run_does_nothing_else(own: Cli) -> None:
    for i in range(2):
        own.fast("submit", "tasks:app", "say", "--key", f"doc-{i}", "--arg", "text=x")
    own.fast("submit", "tasks:app", "say", "--key", "later", "--arg", "text=x", "--delay", "1h")
    dry = own.fast_json("pause", "say", "--dry-run")
    assert (dry["waiting"], dry["phases"], dry["dry_run"]) == (2, {"queued": 2, "scheduled": 1}, True)
    told = own.fast("block", "doc-*", "--dry-run")[0]
    assert "would block  keys doc-*" in told
    assert "live runs    2 (2 queued)" in told
    assert own.fast_json("blocks") == []
    assert own.fast_json("pause", "say")["waiting"] == 2
    assert "3 (2 queued, 1 scheduled)" in own.fast("pause", "default", "--queue")[0]


def test_what_is_wrong_is_named(own: Cli) -> None:
    own.fast("setup", "tasks:app")
    for arguments, named in (
        (("pause", "a b"), "'a b'"),
        (("pause", "x", "--queue", "--actor"), "say one of them"),
        (("pause", "x", "--queue", "--for", "ten"), "--for 'ten'"),
        (("pause", "x", "--queue", "--until", "noon"), "--until 'noon'"),
        (("pause", "x", "--queue", "--until", "2001-01-01T00:00:00Z"), "has passed"),
        (("pause", "x", "--queue", "--for", "5s", "--until", "2090-01-01T00:00:00Z"), "not both"),
        (("block",), "pattern is missing"),
        (("block", "*"), "fits every key"),
        (("block", "$KV.*"), "keep for themselves"),
        (("block", "--actor", "say"), "pattern is missing"),
        (("block", "--actor", "say", "--arg", "text"), "name=value"),
        (("block", "--app", "tasks:app", "--actor", "say", "--arg", "txt=1"), "no such argument"),
        (("block", "--app", "tasks:app", "--actor", "say", "--where", "txt >= 1"), "no such argument"),
        (("block", "--app", "tasks:app", "--actor", "greet", "--where", "times > x"), "of type int"),
        (("block", "--actor", "say", "--where", "text"), "no comparison such as"),
        (("block", "--actor", "say", "--where", "text between 9 and 5"), "nothing is between"),
        (("cancel",), "say what to cancel: a KEY, or"),
        (("cancel", "k", "--pattern", "a*"), "not both"),
        (("cancel", "k", "--dry-run"), "not both"),
        (("cancel", "--pattern", "*"), "fits every key"),
        (("cancel", "--pattern", "a*", "--run", "x"), "--run and --lost-key go with a KEY"),
    ):
        assert named in own.fast(*arguments, code=2)[1], arguments
