"""Every error a user of Tenure can meet, split by what the caller must do about it.

Errors carry what they are about (key, generation, run id, field) as attributes, so that callers never parse messages.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tenure.core.given import seconds as seconds_of

MAX_DELAY_SECONDS = 10 * 366 * 86_400.0
"""Nothing is due later than this: further away is a slip of a unit, and no timer can name it."""


def _rebuilt(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    return kind.__new__(kind, *args)


class _Portable(BaseException):
    """Copied and pickled as it is, with all that it carries: never made anew from its message alone."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args), self.__dict__


class TenureError(_Portable, Exception):
    """Base of every error that Tenure raises."""


class ConfigError(TenureError):
    """The program, the server or a stored stream is set up wrongly.

    A person must change something; retrying is useless.
    """


class InvalidCall(TenureError, ValueError):
    """An argument, key, time or result is not acceptable; nothing was stored.

    ``field`` names the offending argument or parameter (``"key"``, ``"delay"``, an actor's parameter) or is None.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Unavailable(TenureError):
    """The server could not be reached or refused for now. Nothing happened: try again."""


class OutcomeUnknown(TenureError):
    """A write may or may not have happened and the record has moved on since.

    Look (``client.status``) before you repeat.

    ``key`` and ``run_id`` name the write whose fate is unknown.
    """

    def __init__(self, message: str, *, key: str, run_id: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.run_id = run_id


class NewerSchema(TenureError):
    """A record was written by a newer Tenure: this process must not touch it. Upgrade it (or drain it)."""

    def __init__(self, message: str, *, schema: int) -> None:
        super().__init__(message)
        self.schema = schema


class StillOwed(TenureError):
    """Runs or dead letters that a record owes cannot be stored now, though the server answers; the record goes on owing them."""


class UnreadableRecord(TenureError):
    """What the bucket holds for a key is no record: somebody else wrote there. A person must look; nothing was changed."""


class _KeyError(TenureError):
    def __init__(self, message: str, *, key: str, generation: int, run_id: str) -> None:
        super().__init__(message)
        self.key = key
        self.generation = generation
        self.run_id = run_id


class KeyIsLive(_KeyError):
    """``submit(if_live="reject")`` met a live run; ``generation`` and ``run_id`` are that run's. Nothing was stored."""


class KeyConflict(_KeyError):
    """``submit(if_differs="error")`` met a live run of the key with another actor or other arguments.

    Nothing was stored.
    """


class RunFailed(_KeyError):
    """The run failed for good: ``error_type``, ``message`` and ``traceback`` are those of its last attempt.

    ``error_type`` is the name of what the body raised, with its module unless that is built in; or of what befell the
    attempt: ``AttemptTimeout``, ``WorkerLost``, ``ProcessDied``.
    """

    def __init__(
        self, *, key: str, generation: int, run_id: str, error_type: str, message: str, traceback: str
    ) -> None:
        super().__init__(
            f"run of {key!r} failed: {error_type}: {message}", key=key, generation=generation, run_id=run_id
        )
        self.error_type = error_type
        self.message = message
        self.traceback = traceback


class RunCancelled(_KeyError):
    """The run was cancelled; ``reason`` is what the canceller gave."""

    def __init__(self, *, key: str, generation: int, run_id: str, reason: str) -> None:
        super().__init__(
            f"run of {key!r} was cancelled: {reason or 'no reason given'}",
            key=key,
            generation=generation,
            run_id=run_id,
        )
        self.reason = reason


class RunSuperseded(_KeyError):
    """A newer generation took the key before this run's outcome was stored, or its outcome is no longer kept.

    ``by_generation`` is the newest generation (0 where the record is gone); ``result(follow=True)`` goes on to it.
    """

    def __init__(self, *, key: str, generation: int, run_id: str, by_generation: int) -> None:
        by = f"generation {by_generation}" if by_generation else "a record that is gone"
        super().__init__(
            f"generation {generation} of {key!r} has no outcome to read: the key is at {by}",
            key=key,
            generation=generation,
            run_id=run_id,
        )
        self.by_generation = by_generation


class IllegalTransition(TenureError):
    """A command that the transition table does not know for this phase: a defect in Tenure, never a race."""

    def __init__(self, phase: str, command: str, why: str = "") -> None:
        super().__init__(f"no transition for command {command} in phase {phase}{': ' + why if why else ''}")
        self.phase = phase
        self.command = command


class Snooze(_Portable, Exception):
    """Raised by a body: run me again after ``delay`` (seconds, or a timedelta); no failure is counted."""

    def __init__(self, delay: float | timedelta) -> None:
        seconds = seconds_of(delay)
        if seconds is None or seconds < 0:
            msg = f"Snooze: delay must be a finite number of seconds >= 0 or a timedelta, got {delay!r}"
            raise InvalidCall(msg, field="delay")
        if seconds > MAX_DELAY_SECONDS:
            msg = f"Snooze: delay must be at most ten years, got {seconds!r} seconds"
            raise InvalidCall(msg, field="delay")
        super().__init__(f"snooze for {seconds} s")
        self.delay = seconds


class Fail(_Portable, Exception):
    """Raised by a body: this run has failed for good; do not retry."""


class Stopped(_Portable):
    """Raised by ``ctx.check()`` in a plain body that must stop; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
