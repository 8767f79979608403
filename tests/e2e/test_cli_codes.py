"""Every command x every exit code of the command line, as in `every.py`: a command that is new has to say how it ends."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tenure.cli.demo_report import Report
from tenure.cli.problems import Exit
from tenure.cli.root import run
from tests.e2e.commands import ROOT, Cli, Worker
from tests.e2e.every import ALL, EVERY, By, Never, asks_a_server, takes, typed

NOWHERE = "nats://127.0.0.1:9"
QUICK = """
from tenure import App, Config
from tasks import say

app = App("nowhere", config=Config(connect_timeout_seconds=0.1))
app.actor(retry=None)(say.function)
"""


def with_words(code: str) -> list[str]:
    """Commands for which the table has words to end so."""
    return [name for name, codes in EVERY.items() if not isinstance(getattr(codes, code), (By, Never))]


def readable(name: str) -> tuple[str, ...]:
    return ("--json",) if takes(name, "--json") else ()


@pytest.fixture(scope="module")
def stage(cli: Cli, worker: Worker) -> Cli:
    """Keys of every kind, letters, a pause and a block; a worker runs."""
    say, fail = ("tasks:app", "say", "--arg", "text=x", "--key"), ("tasks:app", "fail", "--arg", "why=no", "--key")
    cli.fast("submit", *say, "good", "--wait")
    for key in ("bad", "again", "live", "forget"):
        cli.fast("submit", *fail, key, "--wait", code=1)
    for key in ("later", "soon", "live"):
        cli.fast("submit", *say, key, "--delay", "1h")
    cli.fast("pause", "paused", "--queue")
    cli.fast("block", "old-*")
    return cli


@pytest.fixture
def nowhere(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an app that waits for no server for long, and none there."""
    (cli.folder / "quick.py").write_text(QUICK, encoding="utf-8")
    monkeypatch.chdir(cli.folder)
    monkeypatch.syspath_prepend(str(cli.folder))
    monkeypatch.setenv("TENURE_NATS_URL", NOWHERE)
    monkeypatch.delenv("TENURE_NAMESPACE", raising=False)
    return cli.folder


def of(app: str, name: str) -> list[str]:
    """What is typed, about this app."""
    words = [word.replace("tasks:app", app) for word in typed(name)]
    return [*words, *(("--app", app) if takes(name, "--app") else ())]


# -- the table -------------------------------------------------------------------------------------------------------


def test_every_command_says_how_it_ends() -> None:
    assert EVERY.keys() == ALL.keys()


@pytest.mark.parametrize("name", EVERY)
def test_what_is_shown_elsewhere_is_a_test_there(name: str) -> None:
    for shown in EVERY[name]:
        if isinstance(shown, By):
            page = ast.parse((ROOT / shown.page).read_text(encoding="utf-8"))
            functions = {node.name for node in page.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert shown.test in functions


@pytest.mark.parametrize("name", EVERY)
def test_the_readme_and_the_help_name_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Commands\n")[2].partition("\n## ")[0]
    *group, word = name.split()
    assert re.search(rf"\b{word}\b", readme)
    assert run([*group, "--help"]) == 0
    assert re.search(rf"^│ {word} ", capsys.readouterr().out, re.MULTILINE)


# -- 0 and 1 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", with_words("well"))
def test_what_goes_well_is_exit_code_0_and_data_are_json_where_asked_for(name: str, stage: Cli) -> None:
    out, _ = stage.fast(*EVERY[name].well, *readable(name), code=Exit.OK)
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines, "it prints data"


@pytest.mark.parametrize("name", with_words("failed"))
def test_what_failed_or_was_refused_is_exit_code_1_with_the_reason(name: str, stage: Cli) -> None:
    out, err = stage.fast(*EVERY[name].failed, *readable(name), code=Exit.FAILED)
    assert [json.loads(line) for line in out.splitlines()] or err.startswith("tenure: ")


@pytest.mark.parametrize("name", list(asks_a_server()))
def test_a_defect_is_exit_code_1_of_every_command_that_asks_a_server(
    name: str, nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And one sentence."""

    def broken(*_args: Any, **_options: Any) -> Any:
        raise RuntimeError("on purpose")

    for what in ("nats.connection.Connection.open", "app.App.connect", "app.App.worker", "cli.dev._reload"):
        monkeypatch.setattr(f"tenure.{what}", broken)
    assert run(of("quick:app", name)) == Exit.FAILED
    err = capsys.readouterr().err
    assert err == "tenure: unexpected RuntimeError: on purpose (set TENURE_DEBUG=1 to see where)\n"


def test_a_demonstration_that_does_not_add_up_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(*_args: Any, **_options: Any) -> Report:
        return Report(
            documents=1, workers=1, seconds=1.0, tasks_per_second=1.0, accepted=1, succeeded=1, failed=0, cancelled=0,
            superseded=0, bodies=1, replaced={}, superseded_where={}, cancelled_where={}, monitor={}, takeovers={},
            repaired={}, stale_writes_refused=0, stale_writes_stored=1, checks={"no stale write was stored": False},
            problems=[],
        )  # fmt: skip

    monkeypatch.setattr("tenure.cli.demo_run.play", play)
    assert run(["demo", "--json"]) == Exit.FAILED
    assert capsys.readouterr().err.endswith("do not add up: no stale write was stored\n")


# -- 2 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_whatever_is_wrong_with_its_line_is_exit_code_2_before_a_server_is_asked(
    name: str, nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {"No such option": [*of("quick:app", name), "--colour"]}
    if takes(name, "target"):
        wrong["there is no module 'nothing'"] = of("nothing:app", name)
    if takes(name, "--app"):
        wrong["has no 'ap'; its apps: app"] = of("quick:ap", name)
    if takes(name, "--namespace"):
        words = [word for word in typed(name) if word != "tasks:app"]
        wrong["namespace 'a b'"] = [*words, "--namespace", "a b"]
    if takes(name, "--url"):
        for url in ("http://127.0.0.1:9", "nats://127.0.0.1:notaport"):
            wrong[f"tenure: {url!r} cannot be the URL of a NATS server: "] = [*of("quick:app", name), "--url", url]
    for says, words in wrong.items():
        assert run(words) == Exit.USAGE
        out, err = capsys.readouterr()
        assert says in err
        assert err.startswith("tenure: ")
        assert err.count("\n") == 1
        assert out == ""


@pytest.mark.parametrize("name", [name for name in asks_a_server() if takes(name, "--namespace") and name != "setup"])
def test_a_namespace_that_is_not_there_is_exit_code_2_and_is_not_made(name: str, cli: Cli) -> None:
    out, err = cli.fast(*typed(name), "--namespace", "tpyo", code=Exit.USAGE)
    if name == "doctor":  # its findings are its answer
        assert "namespace 'tpyo' is not set up; run `tenure setup`" in out
    else:
        assert "there is no namespace 'tpyo'" in err


# -- 3 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in asks_a_server() if not isinstance(EVERY[name].unavailable, Never)])
def test_without_a_server_it_is_exit_code_3(name: str, nowhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever it is about: nothing is known of it, and it is to be tried again."""
    assert run(of("quick:app", name)) == Exit.UNAVAILABLE
    out, err = capsys.readouterr()
    if name == "doctor":  # its findings are its answer
        assert "cannot reach a NATS server" in out
        return
    assert re.fullmatch(r"tenure: cannot reach a NATS server at nats://127.0.0.1:9: .*\n", err)
    assert out == ""
