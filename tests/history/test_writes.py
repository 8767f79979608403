"""Each thing that can be wrong with one write, told by that write alone: other rules may notice it too, or may not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.history.check_records import check_records, step
from tests.history.checker import check
from tests.history.evidence import HolderSeen, LastSeen, Revision
from tests.history.stories import Story, ran_well

_HOLDER = HolderSeen("s1", "r1", 1)
_WAITS = Revision(seq=1, before=0, key="k", run_id="r1", generation=1, phase="waiting", actor="nap", overlap="stop")
_RUNS = replace(_WAITS, seq=2, before=1, phase="running", attempt=1, holder=_HOLDER)
_STOPS = replace(_RUNS, seq=3, before=2, phase="stopping", stopped=True)
_LAST = LastSeen("r1", 1, "succeeded", 2.0, 1, "s1")
_CANCELLED = replace(_LAST, phase="cancelled")
_NEXT = replace(_WAITS, run_id="r2", generation=2)
_OVER = replace(_RUNS, phase="succeeded", holder=None, last=_LAST)


def after(before: Revision, base: Revision, **changes: Any) -> tuple[Revision, Revision]:
    return before, replace(base, seq=before.seq + 1, before=before.seq, **changes)


WRONG = {
    "changed its generation": after(_WAITS, _WAITS, generation=2),
    "succeeded became failed": after(_OVER, _OVER, phase="failed"),
    "an accepted cancel of r1 became waiting": after(_STOPS, _WAITS, attempt=1),
    "counted without a claim": after(_WAITS, _WAITS, attempt=1),
    "attempt 1 of r1 became 3": after(_RUNS, _RUNS, attempt=3),
    "changed hands": after(_RUNS, _RUNS, holder=HolderSeen("s2", "r1", 1)),
    "is succeeded without an outcome": after(_RUNS, _OVER, last=None),
    "was followed by 3": after(_WAITS, _NEXT, generation=3),
    "began running": after(_OVER, _NEXT, phase="running", attempt=1, last=_LAST),
    "was forgotten by generation 2": after(_STOPS, _NEXT),
    "has forgotten the body": after(_RUNS, _NEXT),
    "has dropped what generation 1 owed": after(replace(_OVER, outbox=("e",)), _NEXT, last=_LAST),
    "the outcome of the key was dropped": after(_OVER, _NEXT),
    "over r1, which was succeeded": after(_OVER, _OVER, last=replace(_LAST, attempt=2)),
    "which does not hold the run": after(_RUNS, _OVER, last=replace(_LAST, session="s2")),
    "succeeded by nobody": after(_RUNS, _OVER, last=replace(_LAST, session="")),
    "an accepted cancel of r1 ended succeeded": after(_STOPS, _OVER),
    "without a successor": after(replace(_RUNS, every=True), _OVER, every=True),
    "was purged while it was stopping": after(_STOPS, replace(_WAITS, gone=True)),
    "expired while it owed something": after(replace(_OVER, seen=1), replace(_WAITS, gone=True, expired=True)),
}

RIGHT = [
    after(_WAITS, _RUNS),
    after(_RUNS, _STOPS),
    after(_RUNS, _OVER),
    after(_RUNS, _WAITS, attempt=1),
    after(replace(_WAITS, attempt=1), _RUNS, attempt=2, holder=HolderSeen("s1", "r1", 2)),
    after(_STOPS, _RUNS, phase="cancelled", holder=None, last=_CANCELLED),
    after(_STOPS, _NEXT, last=_CANCELLED),
    after(_RUNS, _NEXT, last=_LAST),
    after(_OVER, _NEXT, last=_LAST, outbox=("e",)),
    after(replace(_RUNS, every=True), _NEXT, every=True, last=_LAST),
    after(replace(_STOPS, every=True), _RUNS, every=True, phase="cancelled", holder=None, last=_CANCELLED),
    after(_OVER, replace(_WAITS, gone=True, expired=True)),
]


@pytest.mark.parametrize(("wrong", "writes"), WRONG.items(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_write_is_found(wrong: str, writes: tuple[Revision, Revision]) -> None:
    assert [what for _, what in step(*writes) if wrong in what]


@pytest.mark.parametrize("writes", RIGHT, ids=lambda writes: f"{writes[0].phase} to {writes[1].phase}")
def test_nothing_is_found_in_a_right_write(writes: tuple[Revision, Revision]) -> None:
    assert list(step(*writes)) == []


def test_a_run_that_comes_back_is_found_though_nobody_saw_the_write() -> None:
    story = ran_well()
    story.submit("r2", 2)
    story.write(run_id="r1", generation=3, before=-1)
    assert any("is back" in violation.what for violation in check_records(story.evidence))


def test_a_run_with_two_generations_is_found_though_nobody_saw_the_write() -> None:
    story = Story()
    story.submit()
    story.write(generation=2, before=-1)
    assert any("two generations" in violation.what for violation in check_records(story.evidence))


def test_a_claim_after_a_cancel_is_found_though_nobody_saw_what_was_between() -> None:
    story = Story()
    story.submit()
    story.claim(at=1.0)
    story.write(phase="stopping", stopped=True)
    story.claim("s2", at=3.0, before=-1)
    assert any("after its cancel" in violation.what for violation in check(story.evidence))


def test_an_answer_about_a_key_that_was_never_written_is_judged() -> None:
    story = ran_well()
    story.asked("status", "queued", "r1", asked=1.0, wall=1.1, key="another")
    assert any((v.invariant, v.key) == ("linearizable", "another") for v in check(story.evidence))
