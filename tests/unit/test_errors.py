"""Every error that users can meet goes through a process pool, a logger's queue or a copy, and comes out as it was."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import tenure
from tenure.core import errors
from tenure.testing import Stuck

RUN: dict[str, Any] = {"key": "k", "generation": 3, "run_id": "r", "revision": 7}
MADE: dict[str, BaseException] = {
    "ConfigError": errors.ConfigError("wrong"),
    "EncryptedRecord": errors.EncryptedRecord("sealed", key="k", key_id="2026-11").about(revision=7),
    "Fail": errors.Fail("no use", 7),
    "InvalidCall": errors.InvalidCall("bad", field="key"),
    "KeyConflict": errors.KeyConflict("other arguments", **RUN),
    "KeyIsLive": errors.KeyIsLive("it is live", **RUN),
    "NewerSchema": errors.NewerSchema("too new", schema=9),
    "OutcomeUnknown": errors.OutcomeUnknown("who knows", **RUN),
    "RunCancelled": errors.RunCancelled(**RUN, reason="no need"),
    "RunFailed": errors.RunFailed(**RUN, error_type="KeyError", message="lost", traceback="..."),
    "RunSuperseded": errors.RunSuperseded(**RUN, by_generation=4),
    "Snooze": errors.Snooze(1.5),
    "Stopped": errors.Stopped("cancel"),
    "TenureError": errors.TenureError("any"),
    "Unavailable": errors.Unavailable("away").about(key="k"),
    "UnreadableRecord": errors.UnreadableRecord("no record").about(key="k", revision=7),
}
WAYS: dict[str, Callable[[BaseException], BaseException]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),  # noqa: S301  (what we have pickled ourselves)
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def test_every_exception_that_tenure_exports_is_among_them() -> None:
    exported = {name: getattr(tenure, name) for name in tenure.__all__}
    assert MADE.keys() == {
        name for name, what in exported.items() if isinstance(what, type) and issubclass(what, BaseException)
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "error", [*MADE.values(), errors.IllegalTransition("running", "Claim", "why"), Stuck("ever")], ids=repr
)
def test_an_error_is_rebuilt_as_it_was(error: BaseException, way: str) -> None:
    error.add_note("seen in a test")
    again = WAYS[way](error)
    assert type(again) is type(error)
    assert (again.args, str(again), vars(again)) == (error.args, str(error), vars(error))


class Mine(tenure.TenureError):
    def __init__(self, *, number: int) -> None:
        super().__init__(f"number {number}")
        self.number = number


def test_an_error_that_somebody_derives_needs_nothing_for_it() -> None:
    again = pickle.loads(pickle.dumps(Mine(number=7)))  # noqa: S301  (what we have pickled ourselves)
    assert (type(again), str(again), again.number) == (Mine, "number 7", 7)


@pytest.mark.parametrize(
    "kind", ["KeyConflict", "KeyIsLive", "OutcomeUnknown", "RunCancelled", "RunFailed", "RunSuperseded"]
)
@pytest.mark.parametrize("way", WAYS)
def test_an_error_about_a_run_says_which_also_when_it_is_printed(kind: str, way: str) -> None:
    for error in (MADE[kind], WAYS[way](MADE[kind])):
        assert {name: getattr(error, name) for name in RUN} == RUN
        assert "key='k', generation=3, run_id='r', revision=7" in repr(error)


def test_an_error_is_told_only_what_it_does_not_say_yet() -> None:
    error = errors.Unavailable("away")
    assert (error.key, error.generation, error.run_id, error.revision) == (None, None, None, None)
    assert repr(error) == "Unavailable('away')"
    again = error.about(key="k", revision=0).about(key="other", run_id="r", revision=9)
    assert again is error
    assert (error.key, error.generation, error.run_id, error.revision) == ("k", None, "r", 0)


def test_what_is_long_or_in_the_text_is_not_printed_twice() -> None:
    assert repr(MADE["RunFailed"]).startswith("RunFailed(\"run of 'k' failed: KeyError: lost\", key=")
    assert "traceback" not in repr(MADE["RunFailed"])
    assert "\nseen" not in repr(MADE["RunFailed"])
