"""Log events reach an application that configures nothing, and may carry any field."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tenure.telemetry import configure, get_logger


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The library's logger, left as it was found."""
    logger = logging.getLogger("tenure")
    before = logger.handlers[:], logger.level, logger.propagate
    yield logger
    logger.handlers[:], logger.level, logger.propagate = before


def test_an_application_that_prints_messages_only_sees_the_fields(root: logging.Logger) -> None:
    out = io.StringIO()
    root.handlers[:], root.propagate = [logging.StreamHandler(out)], False
    get_logger("tenure.test").bind(key="k").warning("run.given_up", attempt=2)
    assert out.getvalue() == "run.given_up key='k' attempt=2\n"


def test_a_field_may_be_named_like_an_attribute_of_a_log_record(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(as_json=True)
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        get_logger("tenure.test").exception("greeted.%s", "twice", name="Ada", args=[1], message="hello", module="m")
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["name"], line["args"]) == ("greeted.twice", "error", "Ada", [1])
    assert (line["message"], line["module"]) == ("hello", "m")
    assert "ZeroDivisionError" in line["exception"]


@pytest.mark.parametrize("as_json", [True, False])
def test_it_is_json_unless_a_person_reads_it_at_a_terminal(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    for terminal in (True, False):
        out = io.StringIO()
        monkeypatch.setattr(out, "isatty", lambda terminal=terminal: terminal)
        monkeypatch.setattr("sys.stderr", out)
        configure(as_json=as_json)
        get_logger("tenure.test").info("run.made", key="k")
        line = out.getvalue()
        if as_json or not terminal:
            said = json.loads(line)
            assert (said["event"], said["key"], said["level"]) == ("run.made", "k", "info")
        else:
            assert "run.made" in line
            assert not line.startswith("{")
