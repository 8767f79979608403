"""``tenure dead``: letters listed, shown, replayed and purged by the command line, judged by output and exit codes."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import nats
import pytest

from tenure.cli.problems import Exit
from tenure.core.dead import DeadLetter
from tenure.core.errors import Unavailable
from tenure.dead import DeadLetters
from tests.e2e.commands import Cli, Worker
from tests.support import wait_until

ULID = r"[0-9A-HJKMNP-TV-Z]{26}"


@pytest.fixture
def buried(own: Cli) -> Iterator[Cli]:
    """An app with three dead letters: two of key ``a``, one of ``b c``."""
    sys.modules.pop("tasks", None)  # that of another test's app, imported by this very process
    with own.worker():
        for key in ("a", "b c", "a"):
            own.fast("submit", "tasks:app", "fail", "--key", key, "--arg", f"why=no {key}", "--wait", code=1)
    yield own
    sys.modules.pop("tasks", None)


def test_letters_are_listed_with_what_people_ask_first(buried: Cli) -> None:
    table = buried("dead", "ls").stdout
    lines = [line for line in table.splitlines() if "Fail: no" in line]
    assert [re.split(r"\s{2,}", line.strip())[0] for line in lines] == ["a", "b c", "a"]
    assert [one["key"] for one in buried.fast_json("dead", "ls")] == ["a", "b c", "a"]
    assert [one["generation"] for one in buried.fast_json("dead", "ls", "--key", "a")] == [1, 2]
    assert buried.fast_json("dead", "ls", "--actor", "say") == []
    assert len(buried.fast_json("dead", "ls", "--queue", "default")) == 3
    assert "raise --limit" in buried.fast("dead", "ls", "--limit", "2")[1]


def test_a_letter_is_shown_whole(buried: Cli) -> None:
    said = buried.fast_json("dead", "show", "a")
    assert (said["generation"], said["actor"], said["task"]["args"]) == (2, "fail", {"why": "no a"})
    assert said["failure"]["message"] == "no a"
    text = buried.fast("dead", "show", said["run_id"])[0]
    assert re.search(r'arguments +{"why":"no a"}', text)
    assert "raise Fail(why)" in text


def test_commands_of_strangers_that_were_rejected_are_a_list_of_their_own(own: Cli) -> None:
    async def send() -> None:
        client = await nats.connect(own.url)
        subject = f"tenure.{own.namespace}.submit.say"
        await client.jetstream().publish(subject, b'{"text": 1}', headers={"Tenure-Key": "k"})
        await client.close()

    with own.worker("--with-supervisor"):
        asyncio.run(send())

        async def told() -> list[dict[str, Any]]:
            return [*await asyncio.to_thread(own.fast_json, "dead", "rejected")]

        (one,) = asyncio.run(wait_until(told, description="it is rejected"))
        assert (one["reason"], one["headers"], one["data"]) == ("arguments", {"Tenure-Key": "k"}, '{"text": 1}')
        table = own("dead", "rejected").stdout
        assert re.search(rf"tenure\.{own.namespace}\.submit\.say +k +11 +arguments", table)
        assert own.fast_json("dead", "ls") == []


@pytest.mark.parametrize("command", ["show", "replay", "purge"])
def test_a_letter_that_is_not_there_is_exit_code_2(buried: Cli, command: str) -> None:
    out, err = buried.fast("dead", command, "nobody", code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert "no dead letter of 'nobody'" in err


def test_a_replay_starts_the_run_again_and_takes_the_letter(buried: Cli) -> None:
    newest = buried.fast_json("dead", "show", "a")
    said = buried.fast_json("dead", "replay", "a")
    assert (said["key"], said["generation"], said["replays"]) == ("a", 3, newest["run_id"])
    assert re.fullmatch(ULID, said["run_id"])
    assert [one["generation"] for one in buried.fast_json("dead", "ls", "--key", "a")] == [1]
    with buried.worker():
        buried.fast("result", "a", code=1)
        again = buried.fast_json("dead", "show", "a")
    assert again["run_id"] == said["run_id"]
    assert [death["run_id"] for death in again["history"]] == [newest["run_id"]]
    assert "before that, generation 2" in buried.fast("dead", "show", "a")[0]


def test_a_replay_over_a_live_key_is_exit_code_1_and_says_what_to_do(buried: Cli) -> None:
    buried.fast("submit", "tasks:app", "say", "--key", "a", "--arg", "text=x", "--delay", "1h")
    out, err = buried.fast("dead", "replay", "a", code=1)
    assert out == ""
    assert "'a' is live (generation 3, scheduled)" in err
    assert "`tenure cancel a`" in err
    assert len(buried.fast_json("dead", "ls")) == 3


def test_replaying_all_skips_what_cannot_be_replayed_now(buried: Cli) -> None:
    """Both letters of ``a`` cannot run at once: the older one starts, the other says why and stays."""
    out, err = buried.fast("dead", "replay", "--all", "--yes", code=1)
    assert "3 dead letters to run again" in err
    assert "'a' is live" in err
    assert out.count("\n") >= 2
    assert [one["generation"] for one in buried.fast_json("dead", "ls")] == [2]


def test_purging_takes_one_run_or_a_key_or_an_actor(buried: Cli) -> None:
    first = buried.fast_json("dead", "ls")[0]
    assert buried.fast_json("dead", "purge", first["run_id"]) == {"removed": 1}
    assert buried.fast_json("dead", "purge", "b c") == {"removed": 1}
    assert buried.fast_json("dead", "purge", "--all", "--actor", "say", "--yes") == {"removed": 0}
    assert buried.fast_json("dead", "purge", "--all", "--yes") == {"removed": 1}
    assert buried.fast_json("dead", "ls") == []


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 3), ("", 2, 3)])
def test_a_wide_purge_says_how_many_and_asks(
    buried: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: int
) -> None:
    """Yes, no, and nobody there to answer: a script says --yes."""
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    err = buried.fast("dead", "purge", "--all", code=code)[1]
    assert "3 dead letters to forget" in err
    assert ("--yes" in err) == (code == 2)
    assert len(buried.fast_json("dead", "ls")) == left


@pytest.mark.parametrize("command", ["replay", "purge"])
def test_ctrl_c_at_the_question_ends_the_command_and_does_nothing(buried: Cli, command: str) -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tenure.cli", "dead", command, "--all"],
        cwd=buried.folder,
        env=buried.environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as asking:
        os.close(theirs)
        try:
            text = b""
            while b"all of them?" not in text:
                text += os.read(ours, 1024)
            asking.send_signal(signal.SIGINT)
            assert asking.wait(5) == Exit.INTERRUPTED
        finally:
            asking.kill()
            os.close(ours)
    assert len(buried.fast_json("dead", "ls")) == 3


@pytest.mark.parametrize("command", ["replay", "purge"])
def test_what_was_done_is_told_although_the_rest_could_not_be_done(
    buried: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The server goes away after the first of three letters."""
    real, calls = getattr(DeadLetters, command), itertools.count(1)

    async def refused(self: DeadLetters, which: DeadLetter) -> Any:
        if next(calls) > 1:
            raise Unavailable("refused for now")
        return await real(self, which)

    monkeypatch.setattr(DeadLetters, command, refused)
    out, err = buried.fast("dead", command, "--all", "--yes", "--json", code=3)
    assert "refused for now" in err
    said = json.loads(out)
    assert said == {"removed": 1} if command == "purge" else [one["key"] for one in said] == ["a"]


@pytest.mark.parametrize("words", [(), ("a", "--all"), ("a", "--actor", "fail")])
@pytest.mark.parametrize("command", ["replay", "purge"])
def test_which_letters_must_be_said(own: Cli, command: str, words: tuple[str, ...]) -> None:
    assert "--all" in own.fast("dead", command, *words, code=2)[1]


def test_setup_brings_letters_to_the_age_of_the_app_only_where_it_is_given(own: Cli) -> None:
    own.fast("setup", "tasks:app")
    own.module.write_text(
        own.module.read_text().replace("session_ttl_seconds", "dead_kept_days=7.0, session_ttl_seconds")
    )
    said = own.json("setup", "tasks:app")
    dead = next(change for change in said["streams"] if change["stream"].endswith("_DEAD"))
    assert dead["did"] == "updated"
    assert dead["details"] == [f"max_age is {30 * 86_400 * 10**9}, must be {7 * 86_400 * 10**9}"]
    by_name = own.json("setup", "--namespace", own.namespace)
    assert {change["did"] for change in by_name["streams"]} == {"unchanged"}


def test_letters_of_a_namespace_that_is_not_there_are_not_made(cli: Cli, worker: Worker) -> None:
    assert "no namespace 'never'" in cli.fast("dead", "ls", "--namespace", "never", code=2)[1]
