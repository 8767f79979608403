"""Every error a user of Tenure can meet, split by what the caller must do about it.

Errors carry what they are about (key, generation, run id, revision, field) as attributes, so that callers never parse messages.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from tenure.core.given import seconds as seconds_of

if TYPE_CHECKING:
    from tenure.core.records import Record

MAX_DELAY_SECONDS = 10 * 366 * 86_400.0
"""Nothing is due later than this: further away is a slip of a unit, and no timer can name it."""


_LEFT_OUT = frozenset({"__notes__", "box", "message", "record", "traceback"})
"""Of an error's attributes, what its text says too, or is long."""


def _rebuilt(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    return kind.__new__(kind, *args)


class _Portable(BaseException):
    """Copied and pickled as it is, with all that it carries: never made anew from its message alone."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args), self.__dict__

    def __repr__(self) -> str:
        told = {name: value for name, value in vars(self).items() if name not in _LEFT_OUT and value is not None}
        words = [repr(arg) for arg in self.args] + [f"{name}={value!r}" for name, value in told.items()]
        return f"{type(self).__name__}({', '.join(words)})"


class TenureError(_Portable, Exception):
    """Base of every error that Tenure raises.

    ``key``, ``generation``, ``run_id`` and ``revision`` (of the key's record, as it was read or was to be replaced) say what
    it is about; None where it is about no key, or that is not known.
    """

    key: str | None = None
    generation: int | None = None
    run_id: str | None = None
    revision: int | None = None

    def about(
        self,
        *,
        key: str | None = None,
        generation: int | None = None,
        run_id: str | None = None,
        revision: int | None = None,
    ) -> Self:
        """This error, with what it does not say yet."""
        said = {"key": key, "generation": generation, "run_id": run_id, "revision": revision}
        for name, value in said.items():
            if value is not None and getattr(self, name) is None:
                setattr(self, name, value)
        return self


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

    ``key``, ``generation`` and ``run_id`` name the write whose fate is unknown, ``revision`` what it was to replace (0: nothing).
    """

    key: str

    def __init__(
        self,
        message: str,
        *,
        key: str,
        generation: int | None = None,
        run_id: str | None = None,
        revision: int | None = None,
    ) -> None:
        super().__init__(message)
        self.about(key=key, generation=generation, run_id=run_id, revision=revision)


class NewerSchema(TenureError):
    """A record was written by a newer Tenure: this process must not touch it. Upgrade it (or drain it)."""

    def __init__(self, message: str, *, schema: int) -> None:
        super().__init__(message)
        self.schema = schema


class StillOwed(TenureError):
    """Runs or dead letters that a record owes cannot be stored now, though the server answers; the record goes on owing them."""


class UnreadableRecord(TenureError):
    """What the bucket holds for a key is no record: somebody else wrote there. A person must look; nothing was changed."""


class EncryptedRecord(UnreadableRecord):
    """What is stored of ``key`` is encrypted with the key ``key_id``, which this process lacks, or does not open with it.

    Nothing was changed. ``record``: what is in clear of a key's record, ``box``: the rest of it, as it is stored.
    """

    box: bytes = b""

    def __init__(self, message: str, *, key: str, key_id: str, record: Record | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.key_id = key_id
        self.record = record


class _KeyError(TenureError):
    key: str
    generation: int
    run_id: str

    def __init__(self, message: str, *, key: str, generation: int, run_id: str, revision: int | None = None) -> None:
        super().__init__(message)
        self.about(key=key, generation=generation, run_id=run_id, revision=revision)


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
        self,
        *,
        key: str,
        generation: int,
        run_id: str,
        error_type: str,
        message: str,
        traceback: str,
        revision: int | None = None,
    ) -> None:
        super().__init__(
            f"run of {key!r} failed: {error_type}: {message}",
            key=key,
            generation=generation,
            run_id=run_id,
            revision=revision,
        )
        self.error_type = error_type
        self.message = message
        self.traceback = traceback


class RunCancelled(_KeyError):
    """The run was cancelled; ``reason`` is what the canceller gave."""

    def __init__(self, *, key: str, generation: int, run_id: str, reason: str, revision: int | None = None) -> None:
        super().__init__(
            f"run of {key!r} was cancelled: {reason or 'no reason given'}",
            key=key,
            generation=generation,
            run_id=run_id,
            revision=revision,
        )
        self.reason = reason


class RunSuperseded(_KeyError):
    """A newer generation took the key before this run's outcome was stored, or its outcome is no longer kept.

    ``by_generation`` is the newest generation (0 where the record is gone); ``result(follow=True)`` goes on to it.
    """

    def __init__(
        self, *, key: str, generation: int, run_id: str, by_generation: int, revision: int | None = None
    ) -> None:
        by = f"generation {by_generation}" if by_generation else "a record that is gone"
        super().__init__(
            f"generation {generation} of {key!r} has no outcome to read: the key is at {by}",
            key=key,
            generation=generation,
            run_id=run_id,
            revision=revision,
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
