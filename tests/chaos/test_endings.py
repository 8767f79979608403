"""What is said of processes that were asked to end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.chaos.endings import check_endings, left_behind
from tests.history.evidence import BodyLine, Death, Fault
from tests.history.stories import Story

DRAINED = Death(
    pid=1, role="worker", name="worker0", how="term", asked_at=10.0, killed_at=10.0, at=12.0, wall=12.0, ready=True
)
BODY = BodyLine(
    at=9.0,
    wall=9.0,
    pid=1,
    actor="nap",
    key="k",
    generation=1,
    run_id="r",
    attempt=1,
    fence=1,
    session="s",
    what="start",
)
SERVER_KILL = Fault(kind="server kill", target="server", at=9.5, until=10.5)


def found(death: Death, bodies: list[BodyLine] | None = None, faults: list[Fault] | None = None) -> str:
    """What is wrong with an end, with ``nap`` and ``stubborn`` bodies that ended well beside it."""
    story = Story()
    story.evidence.deaths = [death]
    ended = [replace(BODY, run_id="ended"), replace(BODY, run_id="ended", what="end", how="return", at=9.5)]
    story.evidence.bodies = [*ended, *(bodies or ())]
    return " ".join(violation.what for violation in check_endings(story.evidence, faults or []))


@pytest.mark.parametrize(
    "death",
    [
        DRAINED,
        replace(DRAINED, code=-15, ready=False),
        replace(DRAINED, role="supervisor"),
        replace(DRAINED, role="producer", code=-15),
        replace(DRAINED, asked_at=0.0, how="kill", code=-9),
        replace(DRAINED, how="kill", code=-9, ready=False),
    ],
)
def test_an_end_in_order_is_accepted(death: Death) -> None:
    assert found(death) == ""


@pytest.mark.parametrize(
    ("death", "what"),
    [
        (replace(DRAINED, code=1), "ended with 1 2.0 s after SIGTERM"),
        (replace(DRAINED, code=2, ready=False), "before it was ready"),
        (replace(DRAINED, code=-11), "ended with -11"),
        (replace(DRAINED, code=3), "nothing was wrong with its server"),
        (replace(DRAINED, code=4), "none of its bodies was one that does not end when it is told to"),
        (replace(DRAINED, code=4, role="supervisor"), "ended with 4"),
        (replace(DRAINED, code=1, role="producer"), "ended with 1"),
        (replace(DRAINED, how="kill", code=-9, killed_at=25.0), "did not end within 15.0 s of SIGTERM"),
    ],
)
def test_an_end_out_of_order_is_found(death: Death, what: str) -> None:
    assert what in found(death)


def test_a_server_that_is_away_excuses_the_end_without_it() -> None:
    assert found(replace(DRAINED, code=3), faults=[SERVER_KILL]) == ""
    assert found(replace(DRAINED, code=4), faults=[SERVER_KILL]) == "", "no server took their outcomes"
    assert found(replace(DRAINED, code=4, ready=False), faults=[SERVER_KILL]) == ""
    assert found(replace(DRAINED, code=4, ready=False))
    assert found(replace(DRAINED, how="kill", killed_at=25.0), faults=[SERVER_KILL]) == ""
    assert found(replace(DRAINED, code=1), faults=[SERVER_KILL])
    long_ago = replace(SERVER_KILL, at=-9.0, until=-8.0)
    assert found(replace(DRAINED, code=3), faults=[long_ago])


def test_only_its_own_cut_excuses_a_process() -> None:
    cut = Fault(kind="cut", target="worker0", at=9.5, until=10.5)
    assert found(replace(DRAINED, code=3), faults=[cut]) == ""
    assert found(replace(DRAINED, code=3), faults=[replace(cut, target="worker1")])


def test_who_says_that_every_body_has_ended_leaves_none() -> None:
    assert "k" in found(DRAINED, [BODY])
    assert found(DRAINED, [replace(BODY, child=7)]) == "", "it is killed, and leaves no line"


def test_bodies_are_given_up_only_where_one_does_not_end() -> None:
    assert found(replace(DRAINED, code=4), [replace(BODY, actor="stubborn")]) == ""
    assert found(replace(DRAINED, code=4), [BODY])


def test_a_process_that_is_left_behind_is_found(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
    env = os.environ | {"CHAOS_FOLDER": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=env) as process:
        assert [violation.key for violation in left_behind(tmp_path)] == [str(process.pid)]
        process.communicate()
    assert list(left_behind(tmp_path)) == []
