"""What the model, the simulation and the mutants are asked for: with what would make them look at nothing they do not begin."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model import __main__ as model
from tests.model.scenarios import SMALL
from tests.model.scenarios_large import LARGE
from tests.mutants import __main__ as mutants
from tests.mutants.guard import Guard
from tests.sim import __main__ as sim

Asked = Callable[[list[str]], argparse.Namespace]
TOOLS: dict[str, Asked] = {
    "model": model.asked,
    "sim": lambda given: sim.options().parse_args(given),
    "mutants": mutants.asked,
}


@pytest.mark.parametrize(
    ("tool", "argument", "given"),
    [
        ("model", "name", ["nosuchname"]),
        ("model", "name", ["cancel and a crash", "nosuchname"]),
        *(("model", name, [name, value]) for name in ("--most", "--every") for value in ("0", "-1", "many", "1.5")),
        *(
            ("sim", name, [name, value])
            for name in ("--seeds", "--at-once", "--stop-at")
            for value in ("0", "-3", "many", "1.5")
        ),
        *(("sim", "--seconds", ["--seconds", value]) for value in ("0", "-1", "nan", "inf", "long")),
        *(("sim", "--skew", ["--skew", value]) for value in ("-1", "nan", "inf", "much")),
        ("sim", "--mutant", ["--mutant", ""]),
        ("mutants", "--only", ["--only", "nosuchname"]),
        *(("mutants", "--part", ["--part", value]) for value in ("0/2", "3/2", "0/0", "2", "1/2/3", "-1/2", "a/b", "")),
        ("mutants", "--part", ["--only", "[20] a superseded", "--part", "2/2"]),
    ],
)
def test_what_would_look_at_nothing_is_an_error_that_names_the_argument(
    capsys: pytest.CaptureFixture[str], tool: str, argument: str, given: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        TOOLS[tool](given)
    assert ended.value.code == 2
    assert f"python -m tests.{tool}: error: argument {argument}: " in capsys.readouterr().err


@pytest.mark.parametrize("tool", TOOLS)
def test_the_help_says_how_a_tool_is_called_and_its_defaults(capsys: pytest.CaptureFixture[str], tool: str) -> None:
    with pytest.raises(SystemExit) as ended:
        TOOLS[tool](["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: python -m tests.{tool} ")
    assert "default:" in told
    assert "{," not in told


def test_what_is_in_bounds_is_taken() -> None:
    few = model.asked(["--most", "1", "--every", "1", "cancel and a crash"])
    assert (few.most, few.every, [one.name for one in few.scenarios]) == (1, 1, ["cancel and a crash"])
    assert model.asked([]).scenarios == list(SMALL)
    assert model.asked(["--large"]).scenarios == [*SMALL, *LARGE]
    short = sim.options().parse_args(["--seeds", "1", "--at-once", "1", "--seconds", "0.5", "--skew", "0"])
    assert (short.seeds, short.at_once, short.seconds, short.skew, short.mutant) == (1, 1, 0.5, 0.0, "")
    halves = [mutants.asked(["--part", part]).guards for part in ("1/2", "2/2")]
    assert sorted(guard.name for half in halves for guard in half) == sorted(guard.name for guard in mutants.GUARDS)
    assert mutants.asked([]).guards == list(mutants.GUARDS)


def test_how_long_seeds_took_is_told_in_a_unit_that_shows_it() -> None:
    assert sim.span(2.04) == "2.0 seconds"
    assert sim.span(90) == "1.5 minutes"
    assert sim.span(5_400, "virtual ") == "1.5 virtual hours"


@pytest.mark.parametrize("code", [2, 3, 4, 5, -9])
def test_a_pytest_without_a_verdict_is_a_broken_guard_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, code: int
) -> None:
    """The code cannot be imported, or the test is not there: neither noticed nor a reason to leave the other guards out."""
    broken, good = (Guard(name, "code.py", "guarded\n", "pass\n", ("test_it.py",)) for name in ("broken", "good"))
    verdicts = [(code, "E   IndentationError [/here]"), (1, "FAILED tests/test_it.py::test_one - assert 1 == 2")]
    (tmp_path / "code.py").write_text("guarded\n")
    monkeypatch.setattr(mutants, "GUARDS", (broken, good))
    monkeypatch.setattr(mutants, "_copy", lambda _: tmp_path)
    monkeypatch.setattr(mutants, "_pytest", lambda *_, **__: verdicts.pop(0))
    monkeypatch.setattr("sys.argv", ["mutants", "--no-baseline"])
    assert mutants.main() == 1
    told = capsys.readouterr().out
    assert f"BROKEN   broken: pytest ended with {code} instead of a verdict on test_it.py:" in told
    assert "IndentationError [/here]" in told
    assert "1 of 2 guards are noticed when they are missing\nNOT NOTICED  broken\n" in told
    assert (tmp_path / "code.py").read_text() == "guarded\n"
