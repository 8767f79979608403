"""Log events: ``noun.past_participle`` with bound key, generation, attempt, revision, session.

The library logs through the standard ``logging`` module (logger ``tenure``), so that an application that configures nothing sees
warnings only. ``configure`` is for processes that Tenure starts itself: the command line's.

Levels: debug = every handled wake-up, info = state changed, warning = we recovered, error = a person must look.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

_ROOT = "tenure"


def get_logger(name: str) -> Any:
    """A structlog logger on the standard logger ``name`` (which must begin with ``tenure``)."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.stdlib.render_to_log_kwargs,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def configure(level: str = "info", *, as_json: bool = False) -> None:
    """Send Tenure's log events to standard error, one line each: JSON, or for people."""
    handler = logging.StreamHandler(sys.stderr)
    renderer: Any = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logger = logging.getLogger(_ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
