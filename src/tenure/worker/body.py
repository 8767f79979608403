"""Running a body: from decoded arguments to how it ended. Knows nothing of records, messages or the server.

An async body runs in the task that handles its delivery; a plain one in a thread. Whatever a body does - return, raise,
swallow its cancellation, exit, KeyboardInterrupt - comes out as one ``Ended`` value: all but the cancellation that we
asked for is a failed attempt, never a crash of the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec import Struct

from tenure.actors import Actor
from tenure.context import Context
from tenure.core.errors import Fail, InvalidCall, Snooze, Stopped
from tenure.core.records import Failure
from tenure.payloads import fault
from tenure.telemetry import get_logger
from tenure.worker.table import Live
from tenure.worker.threaded import Threaded

_log = get_logger("tenure.run")
_MESSAGE_LIMIT = 4_096
_NAME_LIMIT = 256
_NO_THREAD_SECONDS = 2.0
"""Then a run is looked at again, by whichever worker, for which no thread could be started; that is no failure of its own."""


class Returned(Struct, frozen=True, tag=True):
    """The body returned; ``data`` is its value as JSON."""

    data: bytes


class Raised(Struct, frozen=True, tag=True):
    """The body failed; ``final``: trying again is useless."""

    failure: Failure
    final: bool


class Snoozed(Struct, frozen=True, tag=True):
    """The body asks to run again after ``delay`` seconds."""

    delay: float


class Halted(Struct, frozen=True, tag=True):
    """The body ended because it was told to stop (or was cancelled from outside)."""


Ended = Returned | Raised | Snoozed | Halted


async def run_body(  # noqa: PLR0917  (one call, each argument another thing)
    actor: Actor[..., ..., Any, Any], context: Context, live: Live, args: bytes, pool: ThreadPoolExecutor, limit: int
) -> Ended:
    """Run the body to its end, however long it takes. ``limit``: bytes of traceback to keep."""
    try:
        values = actor.decode_args(args)
        if actor.is_async:
            value = await _run_async(actor, context, live, values)
        else:
            value = await _run_in_thread(actor, context, live, values, pool)
        return Returned(_encode(value)) if context.stop_reason != "timeout" else Halted()
    except asyncio.CancelledError:
        if context.stop_reason is None:
            if live.abandoned or live.torn_down:
                raise  # not the body's doing: the whole loop is being torn down
            return Raised(Failure(type="CancelledError", message="the body was cancelled from within"), final=False)
        return Halted()
    except Stopped as stopped:
        return _stopped(stopped, context, limit)
    except Snooze as snooze:
        return Snoozed(snooze.delay) if context.stop_reason != "timeout" else Halted()
    except BaseException as error:  # user code may raise anything: without an outcome it would run again for ever
        if isinstance(error, GeneratorExit) and _thrown_away(live):
            raise
        if isinstance(error, BaseExceptionGroup) and error.split(Stopped)[1] is None:
            return _stopped(error, context, limit)
        if live.interrupted and context.stop_reason in {"drain", "lease_lost"}:
            return Halted()  # what a body makes of its interruption is not a failure of its own
        return Raised(describe(error, limit), final=isinstance(error, Fail | _Unencodable | InvalidCall))


def _thrown_away(live: Live) -> bool:
    """Whether nobody drives this coroutine any more: it is being closed, not ended by what its body raised."""
    try:
        return asyncio.current_task() is not live.task
    except RuntimeError:  # there is not even a loop
        return True


def _stopped(error: BaseException, context: Context, limit: int) -> Ended:
    """Stopped as it was told; or, if nobody told it, a failure: handed back it would run again at once, for ever."""
    return Halted() if context.stop_reason is not None else Raised(describe(error, limit), final=False)


async def _run_async(actor: Actor[..., ..., Any, Any], context: Context, live: Live, values: dict[str, Any]) -> Any:
    context.enter()
    live.is_async = True
    live.in_body = True
    try:
        if context.stop_reason is not None:  # no body starts after it was told to stop, nor after the drain signal
            raise Stopped(context.stop_reason)
        return await (actor.function(context, **values) if actor.takes_context else actor.function(**values))
    finally:
        live.in_body = False
        if live.task is not None and live.task.cancelling():
            await _take_cancellation()
            if context.stop_reason is not None or not live.torn_down:
                while live.task.cancelling():  # it was meant for the body; what follows must not be cut short
                    live.task.uncancel()


async def _take_cancellation() -> None:
    """Let a cancellation that is still to be delivered (the body did not await after it) come out here."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


async def _run_in_thread(
    actor: Actor[..., ..., Any, Any], context: Context, live: Live, values: dict[str, Any], pool: ThreadPoolExecutor
) -> Any:
    def call() -> Any:
        context.enter()
        if context.stop_reason is not None:  # no body starts after it was told to stop, nor after the drain signal
            raise Stopped(context.stop_reason)
        live.in_thread = True
        try:
            return actor.function(context, **values) if actor.takes_context else actor.function(**values)
        finally:
            live.in_thread = False

    live.in_body = True
    try:
        threaded = Threaded(call)
        try:
            threaded.start(pool)
        except RuntimeError as error:
            _log.error("thread.not_started", key=live.key, run_id=live.run_id, error=str(error))
            raise Snooze(_NO_THREAD_SECONDS) from None
        return await threaded.outcome(live)
    finally:
        live.in_body = False
        if not (live.abandoned or live.torn_down):
            await _say_reported(context, live)


async def _say_reported(context: Context, live: Live) -> None:
    try:
        await context.say_reported()
    except asyncio.CancelledError:
        if live.abandoned or live.torn_down or live.task is None:
            raise
        while live.task.cancelling():  # a stranger's, of whatever task it found: the body has ended by itself
            live.task.uncancel()


class _Unencodable(Exception):
    pass


def _encode(value: Any) -> bytes:
    if value is None:
        return b"null"
    if isinstance(value, Coroutine):
        value.close()  # it is never awaited: Python would complain of that as well
        msg = "the result is a coroutine: make the actor `async def`, or await what it returns"
        raise _Unencodable(msg)
    try:
        data = msgspec.json.encode(value)
    except Exception as error:
        msg = f"the result ({type(value).__name__}) cannot be encoded as JSON: {error}"
        raise _Unencodable(msg) from error
    why = fault(value, data)
    if why:
        msg = f"the result {why}"
        raise _Unencodable(msg)
    return data


def describe(error: BaseException, limit: int) -> Failure:
    """An exception as text. Never raises, whatever the exception's own methods do."""
    kind = type(error)
    name = (
        kind.__qualname__.lstrip("_")
        if kind.__module__ in {"builtins", __name__, "tenure.core.errors"}
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    message = "(its message cannot be read)"
    with contextlib.suppress(BaseException):
        message = str(error)
    text = ""
    with contextlib.suppress(BaseException):
        text = "".join(traceback.format_exception(error))
    return Failure(
        type=_clean(name)[:_NAME_LIMIT], message=_clean(message)[:_MESSAGE_LIMIT], traceback=_clean(text)[-limit:]
    )


def _clean(text: str) -> str:
    """Only what UTF-8 can carry: a lone surrogate in a message must not make the outcome unstorable."""
    return text.encode("utf-8", "backslashreplace").decode()
