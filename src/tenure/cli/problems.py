"""Exit codes, and the one sentence that each error becomes."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from tenure.core.errors import (
    ConfigError,
    InvalidCall,
    KeyConflict,
    KeyIsLive,
    NewerSchema,
    OutcomeUnknown,
    RunCancelled,
    RunFailed,
    RunSuperseded,
    TenureError,
    Unavailable,
    UnreadableRecord,
)


class Exit(IntEnum):
    """What a command's end means to a script."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3
    GIVEN_UP = 4
    INTERRUPTED = 130


class NotFound(TenureError):
    """What a command names does not exist."""


class NothingThere(TenureError):
    """There is nothing to end."""


def no_key(key: str, namespace: str) -> NotFound:
    """For a key that no record is stored of."""
    return NotFound(f"there is no key {key!r} in namespace {namespace!r}")


_BY_KIND: tuple[tuple[tuple[type[BaseException], ...], Exit], ...] = (
    ((RunFailed, RunCancelled, RunSuperseded, KeyIsLive, KeyConflict), Exit.FAILED),
    ((ConfigError, InvalidCall, NewerSchema, UnreadableRecord, NotFound), Exit.USAGE),
    ((Unavailable, OutcomeUnknown, TimeoutError), Exit.UNAVAILABLE),
    ((TenureError,), Exit.FAILED),
)


def explain(error: BaseException) -> tuple[Exit, str]:
    """The exit code and the sentence for an error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    for kinds, code in _BY_KIND:
        if isinstance(error, kinds):
            return code, str(error) or type(error).__name__
    return Exit.FAILED, f"unexpected {type(error).__name__}: {error} (set TENURE_DEBUG=1 to see where)"


def tell(error: BaseException) -> Exit:
    """Say on standard error what went wrong, with $TENURE_DEBUG where as well; the exit code."""
    if os.environ.get("TENURE_DEBUG"):
        traceback.print_exception(error)
    code, text = explain(error)
    complain(text)
    return code


def usage(text: str) -> str:
    """What is wrong with a command line, without the words of the library that read it."""
    text = re.sub(r"\b(?:Value|Assertion) error, ", "", text)
    text = re.sub(r", unable to parse .*", "", text)
    text = re.sub(r"\bUnable to parse .*", "too large a number", text)
    return re.sub(r"\bInput should be\b", "must be", text) or "say what to do: `tenure --help` lists the commands"


@contextmanager
def ports_explained(also: str = "") -> Iterator[None]:
    """A server's own words for a port that is taken become a sentence."""
    try:
        yield
    except ConfigError as error:
        taken = re.search(r"listen tcp \S*:(\d+): bind: address already in use", str(error))
        if taken is None:
            raise
        raise ConfigError(f"port {taken[1]} is taken: {also}give another --port, or end what listens there") from error


def complain(text: str) -> None:
    """Say on standard error what is wrong."""
    print(f"tenure: {text}", file=sys.stderr, flush=True)
