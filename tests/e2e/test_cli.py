"""The commands, run as people and scripts run them.

Against a real server, judged by what they print and by their exit codes.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure import InvalidCall
from tenure.cli.parsing import duration
from tenure.cli.root import run
from tests.e2e.commands import Cli, Worker, end
from tests.e2e.every import ALL, EVERY
from tests.support import wait_until

NOWHERE = "nats://127.0.0.1:9"


# -- start and wait --------------------------------------------------------------------------------------------------


def test_submit_with_wait_prints_the_result(cli: Cli, worker: Worker) -> None:
    done = cli("submit", "tasks:app", "greet", "--key", "a", "--arg", "name=Ada", "--arg", "times=2", "--wait")
    assert re.search(r"key +a\ngeneration +1\n", done.stdout)
    assert '"text": "hello Ada hello Ada"' in done.stdout


def test_submit_prints_json_and_says_whether_it_started_a_run(cli: Cli, worker: Worker) -> None:
    call = ("submit", "tasks:app", "nap", "--key", "twice", "--arg", "seconds=30")
    first, second = cli.json(*call), cli.fast_json(*call)
    assert first["accepted"] is True
    assert second == first | {"accepted": False}
    assert cli.fast_json("cancel", "twice")["outcome"] in {"cancelled", "stopping"}


def test_an_argument_is_json_if_that_fits_and_else_the_text_itself(cli: Cli, worker: Worker) -> None:
    """A name that looks like a number stays a name; a time that is no JSON becomes a time."""
    arguments = ("--arg", "name=17", "--arg", "at=2031-05-01T00:00:00Z")
    said = cli.fast_json("submit", "tasks:app", "greet", *arguments, "--args", '{"times": 2}', "--wait")
    assert said["result"] == {"text": "hello 17 hello 17", "year": 2031}
    assert said["outcome"] == "succeeded"


def test_a_failed_run_is_exit_code_1_and_one_sentence(cli: Cli, worker: Worker) -> None:
    call = ("submit", "tasks:app", "fail", "--key", "bad", "--arg", "why=the disk is full", "--wait")
    done = cli(*call, code=1)
    assert done.stderr.count("\n") == 1
    assert "the disk is full" in done.stderr
    said = cli.fast_json(*call, code=1)
    assert (said["outcome"], said["message"]) == ("failed", "the disk is full")
    assert cli.fast_json("result", "bad", code=1)["outcome"] == "failed"


def test_replace_supersedes_and_result_follows_the_newest(cli: Cli, worker: Worker) -> None:
    old = cli.fast_json("submit", "tasks:app", "nap", "--key", "r", "--arg", "seconds=60")
    new = cli.json("replace", "tasks:app", "say", "--key", "r", "--arg", "text=new", "--overlap", "parallel", "--wait")
    assert (old["generation"], new["generation"], new["result"]) == (1, 2, "new")
    assert cli("result", "r").stdout == "new\n"
    assert cli.fast_json("result", "r", "--app", "tasks:app")["result"] == "new"
    assert re.search(r"generation +3\n", cli("replace", "tasks:app", "say", "--key", "r", "--arg", "text=x").stdout)


def test_a_result_that_takes_too_long_is_exit_code_3(cli: Cli, worker: Worker) -> None:
    cli.fast("submit", "tasks:app", "say", "--key", "later", "--arg", "text=x", "--delay", "1h")
    assert "not over after 0.1 s" in cli.fast("result", "later", "--timeout", "100ms", code=3)[1]
    assert cli.fast_json("cancel", "later", "--reason", "enough")["outcome"] == "cancelled"
    assert "enough" in cli.fast("result", "later", code=1)[1]


def test_cancel_hits_the_run_that_was_named_or_nothing(cli: Cli, worker: Worker) -> None:
    first = cli.fast_json(
        "submit", "tasks:app", "nap", "--key", "c", "--arg", "seconds=60", "--at", "2031-01-01T00:00:00Z"
    )
    second = cli.fast_json("replace", "tasks:app", "nap", "--key", "c", "--arg", "seconds=60", "--delay", "1h30m")
    assert cli.json("cancel", "c", "--run", first["run_id"])["outcome"] == "finished"
    assert cli.fast_json("show", "c")["phase"] == "scheduled"
    assert re.search(r"outcome +cancelled", cli("cancel", "c", "--run", second["run_id"]).stdout)
    assert cli.fast_json("cancel", "nobody", code=2)["outcome"] == "not_found"


def test_a_refused_submit_is_exit_code_1(cli: Cli, worker: Worker) -> None:
    call = ("submit", "tasks:app", "say", "--key", "taken", "--delay", "1h", "--arg")
    cli.fast(*call, "text=x")
    assert "is live" in cli.fast(*call, "text=x", "--if-live", "reject", code=1)[1]
    assert "other arguments" in cli.fast(*call, "text=y", "--if-differs", "error", code=1)[1]
    assert cli.fast_json(*call, "text=y", "--if-live", "replace")["generation"] == 2


# -- look ------------------------------------------------------------------------------------------------------------


def test_show_and_ls_tell_phases(cli: Cli, worker: Worker) -> None:
    cli.fast("submit", "tasks:app", "say", "--key", "seen", "--arg", "text=x", "--wait")
    cli.fast("submit", "tasks:app", "say", "--key", "schedul/éd", "--arg", "text=x", "--delay", "2m")
    assert re.search(r"phase +succeeded\n", cli("show", "seen").stdout)
    shown = cli.json("show", "schedul/éd")
    assert (shown["phase"], shown["actor"], shown["attempt"]) == ("scheduled", "say", 0)
    rows = {row["key"]: row for row in cli.json("ls", "--actor", "say", "--queue", "default", "--limit", "1000")}
    assert rows["seen"]["phase"] == "succeeded"
    assert rows["schedul/éd"]["phase"] == "scheduled"
    assert {row["actor"] for row in rows.values()} == {"say"}
    assert re.search(r"schedul/éd +scheduled +1 +say", cli("ls", "--phase", "scheduled").stdout)
    assert cli.fast_json("ls", "--queue", "no-such-queue") == []
    assert "more keys are not shown" in cli.fast("ls", "--limit", "1")[1]


def test_watch_of_a_key_ends_with_its_run(cli: Cli, worker: Worker) -> None:
    cli.fast("submit", "tasks:app", "nap", "--key", "w", "--arg", "seconds=2")
    events = [json.loads(line) for line in cli("watch", "w", "--json").stdout.splitlines()]
    assert {event["kind"] for event in events} <= {"status", "progress"}
    assert events[-1]["status"]["phase"] == "succeeded"
    cli.fast("submit", "tasks:app", "fail", "--key", "w2", "--arg", "why=x")
    assert "w2  generation 1  failed" in cli("watch", "w2", code=1).stdout


def test_watch_of_a_pattern_tells_of_every_key_that_fits_until_interrupted(cli: Cli, worker: Worker) -> None:
    """A key is submitted again and again until the watch has subscribed; what does not fit is never printed."""
    watching = cli.start("watch", "job/*", "--json")
    submitting = 0
    assert watching.stdout is not None
    seen: list[dict[str, Any]] = []

    def read() -> None:
        assert watching.stdout is not None
        seen.extend(map(json.loads, watching.stdout))

    async def main() -> None:
        reading = asyncio.create_task(asyncio.to_thread(read))

        async def submitted() -> bool:
            nonlocal submitting
            submitting += 1
            await asyncio.to_thread(
                cli.fast, "submit", "tasks:app", "say", "--key", f"job/{submitting}", "--arg", "text=x"
            )
            await asyncio.to_thread(
                cli.fast, "submit", "tasks:app", "say", "--key", f"other/{submitting}", "--arg", "text=x"
            )
            return any(event["status"]["phase"] == "succeeded" for event in seen)

        await wait_until(submitted, description="the watch prints a success", timeout=20)
        watching.send_signal(signal.SIGINT)
        await reading

    asyncio.run(main())
    assert end(watching) == 0
    assert {event["key"].partition("/")[0] for event in seen} == {"job"}


# -- errors ----------------------------------------------------------------------------------------------------------

USAGE = {
    "no such command": (["sumbit"], "No such command"),
    "no such option": (["ls", "--colour"], "No such option"),
    "an actor that is missing": (["submit", "tasks:app", "nobody"], "has no actor 'nobody'; it has: block, fail"),
    "a module that is missing": (["submit", "nothing.here:app", "say"], "there is no module 'nothing.here'"),
    "an attribute that is missing": (["submit", "tasks:ap", "say"], "has no 'ap'; its apps: app"),
    "an app that is none": (["submit", "tasks:not_an_app", "say"], "is of type int, not a tenure.App"),
    "a target without app": (["worker", "tasks"], "write it as module:app"),
    "a module that cannot be imported": (["worker", "broken:app"], "cannot be imported: RuntimeError: on purpose"),
    "a mistake in a module, by its line": (["worker", "mistaken:app"], "mistaken.py:3)"),
    "a module that needs a missing one": (["worker", "needy:app"], "it needs 'no_such_package'"),
    "an argument of the wrong type": (
        ["submit", "tasks:app", "greet", "--arg", "name=x", "--arg", "times=1.5"],
        "'times'",
    ),
    "an argument that nobody knows": (["submit", "tasks:app", "say", "--arg", "txt=x"], "no argument 'txt'"),
    "an argument that is missing": (["submit", "tasks:app", "say"], "argument 'text' is missing"),
    "an argument without a value": (["submit", "tasks:app", "say", "--arg", "text"], "is not name=value"),
    "arguments that are no object": (["submit", "tasks:app", "say", "--args", "[1]"], "must be a JSON object"),
    "a duration without a unit": (["submit", "tasks:app", "say", "--arg", "text=x", "--delay", "10"], "10s, 2m"),
    "a time without a zone": (
        ["submit", "tasks:app", "say", "--arg", "text=x", "--at", "2031-01-01T00:00"],
        "no time zone",
    ),
    "a key that is too long": (["show", "k" * 300, "--app", "tasks:app"], "use a digest"),
    "a replace without a key": (["replace", "tasks:app", "say", "--arg", "text=x"], "--key"),
    "no namespace": (["show", "k", "--namespace", ""], "say which namespace"),
    "a bad namespace": (["show", "k", "--namespace", "a b"], "namespace 'a b'"),
    "a metrics address of another machine": (
        ["worker", "tasks:app", "--metrics-port", "0", "--metrics-host", "192.0.2.1"],
        "cannot serve",
    ),
    "a file in the place of a module": (["submit", "./tasks.py:app", "say"], "as module:app, e.g. tasks:app"),
    "a file's name in the place of a module": (["worker", "tasks.py:app"], "'tasks.py' is no module"),
    "a module with an empty part": (["worker", ".tasks:app"], "'.tasks' is no module"),
    "an empty key": (["show", "", "--app", "tasks:app"], "key is empty: give at least one character\n"),
    "a store that is a file": (["server", "--store", "tasks.py", "--port", "0"], "it is not a folder"),
}


@pytest.fixture
def here(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The app's folder as the current one, for commands that run in this process."""
    (cli.folder / "broken.py").write_text("raise RuntimeError('on purpose')\n", encoding="utf-8")
    (cli.folder / "mistaken.py").write_text("from tenure import App\n\napp = App('a b')\n", encoding="utf-8")
    (cli.folder / "needy.py").write_text("import no_such_package\n", encoding="utf-8")
    monkeypatch.chdir(cli.folder)
    monkeypatch.syspath_prepend(str(cli.folder))
    monkeypatch.setenv("TENURE_NATS_URL", NOWHERE)
    monkeypatch.delenv("TENURE_NAMESPACE", raising=False)
    return cli.folder


@pytest.mark.parametrize("case", USAGE)
def test_usage_is_exit_code_2_and_a_sentence(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Told before any server is asked: none listens here."""
    arguments, text = USAGE[case]
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert text in err
    assert err.startswith("tenure: ")
    assert "Traceback" not in err
    assert out == ""


def options() -> Iterator[tuple[list[str], str]]:
    """Every option of every command that takes a value, with the words that lead to it."""
    for name, command in ALL.items():
        if name in {"demo", "dev", "server", "bench"}:  # they would start
            continue
        for option in command.params:
            if option.param_type_name == "option" and not option.is_flag and "--namespace" not in option.opts:
                yield name.split(), option.opts[0]


@pytest.mark.parametrize(("words", "option"), list(options()), ids=str)
def test_a_bad_option_is_told_in_our_words(
    words: list[str], option: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is wrong with it, and if nothing is, then what is missing otherwise: no library speaks."""
    for value in ("bad", "-7", "99999999", "9" * 5_000, "1.5", ""):
        assert run([*words, option, value]) == 2
        err = capsys.readouterr().err
        assert re.match(r"tenure: \S", err)
        assert not re.search("Value error|Input should|[Pp]arse|pydantic|typer|click", err)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--limit", "0", "must be greater than"),
        ("--limit", "x", "must be a valid integer"),
        ("--phase", "x", ": 'x' is not one of "),
    ],
)
def test_a_bad_option_names_what_is_possible(
    option: str, value: str, words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ls", option, value]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", [["ls", "--app", "tasks:app"], ["worker", "tasks:app"]], ids=["ls", "worker"])
@pytest.mark.parametrize("debug", ["", "1"])
def test_a_defect_is_told_and_shown_where_that_was_asked_for(
    command: list[str], debug: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any, **_options: Any) -> Any:
        raise RuntimeError("on purpose")

    monkeypatch.setattr("tenure.app.App.worker", broken)
    monkeypatch.setattr("tenure.cli.options.looking", broken)
    monkeypatch.setenv("TENURE_DEBUG", debug)
    assert run(command) == 1
    err = capsys.readouterr().err
    assert "tenure: unexpected RuntimeError: on purpose (set TENURE_DEBUG=1 to see where)\n" in err
    assert ("Traceback" in err) == (debug == "1")


def test_a_queue_of_no_actor_is_told_of(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["worker", "tasks:app", "-q", "defualt", "-q", "default"]) == 3
    told, *_ = capsys.readouterr().err.splitlines()
    assert told.endswith(" uses the queue 'defualt'; its queues: default")


def test_a_missing_key_is_exit_code_2(cli: Cli, worker: Worker) -> None:
    for command in ("show", "result", "watch"):
        assert "there is no key 'nobody'" in cli.fast(command, "nobody", code=2)[1]


def test_help_and_version_work_everywhere(cli: Cli, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("--version").stdout.startswith("0.")
    assert run(["--help"]) == 0
    listed = set(re.findall(r"^│ (\w+) ", capsys.readouterr().out, re.MULTILINE))
    assert {name.split()[0] for name in EVERY} == listed
    for name in EVERY:
        assert run([*name.split(), "--help"]) == 0
        first = re.split(r"\n\s*\n", capsys.readouterr().out.strip())[1]
        assert re.search(r"[.)]$", first.strip()), "what a command is for is a sentence"
        assert first.count("(") == first.count(")"), "and a whole one"


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("1h30m", 5_400), ("1d", 86_400), ("0s", 0)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert duration(text, "--delay") == seconds


@pytest.mark.parametrize("text", ["", "10", "-1s", "1 s", "s", "1x", "1s2", "nan", "infs"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidCall, match="write it like"):
        duration(text, "--delay")
