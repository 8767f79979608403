"""The apps of ``tests.site_app``, in a process that kills itself at one point of the shipped code.

Which one the environment says: ``before`` or ``after`` a call of a function, as in ``before tenure.nats.work:Work.wake`` or
``after tenure.nats.runs:Runs.commit(ClearOutbox)``; the name in brackets is the class of an argument, without which a call
does not count. It dies by SIGKILL, from one instruction to the next, with all of its threads.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import signal
from collections.abc import Awaitable
from typing import Any

from tests.site_app import app, beating

__all__ = ["app", "beating"]

DIES = "SITE_DIES"
TARGET = "tests.mortal:app"
BEATING = "tests.mortal:beating"
_POINT = re.compile(r"(?P<when>before|after) (?P<module>[\w.]+):(?P<path>[\w.]+)(?:\((?P<given>\w+)\))?")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Put death into one function of this process."""
    told = _POINT.fullmatch(point)
    assert told is not None, point
    *owners, name = told["path"].split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(told["module"]))
    function = getattr(owner, name)
    assert inspect.isfunction(function), f"{point}: it is no function"

    async def then_dies(work: Awaitable[Any]) -> None:
        await work
        die()

    @functools.wraps(function)
    def mortal(*given: Any, **options: Any) -> Any:
        if told["given"] and not any(type(one).__name__ == told["given"] for one in given):
            return function(*given, **options)
        if told["when"] == "before":
            die()
        done = function(*given, **options)
        if inspect.isawaitable(done):
            return then_dies(done)
        return die()

    setattr(owner, name, mortal)


if _chosen := os.environ.get(DIES, ""):
    arm(_chosen)
