"""Log events: ``noun.past_participle`` with bound key, generation, attempt, revision, session.

The library logs through the standard ``logging`` module (logger ``tenure``), so that an application that configures
nothing sees warnings only. ``configure`` is for processes that Tenure starts itself: the command line's.

Levels: debug = every handled wake-up, info = state changed, warning = we recovered, error = a person must look.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

_ROOT = "tenure"
_FIELDS = "tenure_fields"
_SHOWN_ELSEWHERE = frozenset({"event", "level", "timestamp", "exception"})


def get_logger(name: str) -> Any:
    """A structlog logger on the standard logger ``name`` (which must begin with ``tenure``)."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _to_record,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _to_record(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The event and its fields as the message, for handlers that print only that.

    All of it in one attribute for ``configure``.

    Not one attribute per field: a body may log a field that every record has already (``name``, ``args``), which
    logging refuses.
    """
    passed = {name: event.pop(name) for name in ("exc_info", "stack_info", "stacklevel") if name in event}
    words = [str(event.get("event", ""))]
    words += [f"{name}={value!r}" for name, value in event.items() if name not in _SHOWN_ELSEWHERE]
    text = "\n".join([" ".join(words), *([event["exception"]] if "exception" in event else [])])
    return {"msg": text, "extra": {_FIELDS: dict(event)}, **passed}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of one of our log events."""
    fields: dict[str, Any] = getattr(record, _FIELDS, {})
    return fields


def pass_on(name: str, level: int, text: str, fields: dict[str, Any]) -> None:
    """Log an event of another process as it was made there."""
    logging.getLogger(name).log(level, text, extra={_FIELDS: fields})


def _from_record(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.update(fields_of(event["_record"]))
    return event


def configure(level: str = "info", *, as_json: bool = False) -> None:
    """Send Tenure's log events to standard error, one line each: for people at a terminal, else JSON, or wherever it is asked for."""
    handler = logging.StreamHandler(sys.stderr)
    renderer: Any = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() and not as_json else structlog.processors.JSONRenderer()
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_from_record],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logger = logging.getLogger(_ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
