"""Completion in the shell, ``--json`` on whatever prints data, and help that reads as documentation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.cli.root import run
from tests.e2e.every import ALL

_NO_DATA = {
    "server": "its own log",
    "dev": "a worker's log",
    "worker": "--log-json: a line when it is ready",
    "supervisor": "--log-json: a line when it is ready",
}


def complete(words: str, folder: Path) -> set[str]:
    """What bash is offered after these words."""
    number = len(words.split(" ")) - 1
    told = {"_TENURE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    return set(command(folder, told).split())


def command(folder: Path, told: dict[str, str], *arguments: str) -> str:
    """What the command prints, told so much by its environment."""
    done = subprocess.run(
        [sys.executable, "-m", "tenure.cli", *arguments],
        cwd=folder,
        env=os.environ | told,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tenure qu", {"queues"}),
        ("tenure re", {"replace", "repair", "result", "resume"}),
        ("tenure dead re", {"rejected", "replay"}),
        ("tenure doctor --role s", {"supervisor", "setup"}),
        ("tenure ls --phase s", {"scheduled", "stopping", "succeeded"}),
    ],
)
def test_the_shell_is_offered_commands_and_choices(words: str, offered: set[str], tmp_path: Path) -> None:
    assert complete(words, tmp_path) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str, tmp_path: Path) -> None:
    """By the script that `--show-completion` prints: to be put where that shell looks for it.

    Which shell it is typer sees by the parent processes, unless it is told not to look.
    """
    told = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert f"complete_{shell}" in command(tmp_path, told, "--show-completion", shell)


@pytest.mark.parametrize("name", ALL)
def test_what_prints_data_prints_it_as_json_too(name: str) -> None:
    assert ("--json" in [opt for option in ALL[name].params for opt in option.opts]) != (name in _NO_DATA)


@pytest.mark.parametrize("name", ALL)
def test_help_reads_as_documentation(name: str) -> None:
    """Sentences; every option and argument whose name does not say it all is explained."""
    text = re.sub(r"\s+", " ", ALL[name].help or "").strip()
    assert not re.search(r"[^\n]\n[^\n]", ALL[name].help or ""), "paragraphs as wide as the terminal"
    assert re.match(r"[A-Z][^.]{5,}", text)
    assert text.endswith((".", ")"))
    for option in ALL[name].params:
        if option.param_type_name == "option" and not option.hidden:
            assert re.match(r"(?:[A-Z0-9]|ISO|NATS)", option.help or ""), option.opts
            assert (option.help or "").endswith((".", ")", "h", "7")), (option.opts, option.help)


@pytest.mark.parametrize("words", [[], ["dead"]])
def test_a_command_of_which_nothing_is_asked_tells_its_help_and_nothing_else(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    told = capsys.readouterr()
    assert "Usage: tenure" in told.out
    assert told.err == ""


@pytest.mark.parametrize("name", ["", *ALL])
def test_no_flag_seems_to_want_a_word_and_no_argument_is_bracketed_twice(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*name.split(), "--help"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"--help +Show", told)
    assert "<bool>" not in told
    assert "[[" not in told
