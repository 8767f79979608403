"""What a worker and its child processes say to each other: one struct per message, msgpack with its length in front.

Only text, numbers and bytes cross: arguments and results as the JSON that is stored, failures as text. Nothing is
pickled, so nothing of one process can be rebuilt by accident in the other.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tenure.actors import Call
from tenure.context import Context, Rescheduled, Spawned, StopReason
from tenure.core.records import Task
from tenure.worker.body import Ended

LENGTH_BYTES = 8


# -- to the child ----------------------------------------------------------------------------------------------------


class Prepare(Struct, frozen=True, tag=True):
    """Import an actor, and say Ready or Broken."""

    module: str
    path: str
    name: str
    namespace: str
    log_level: int


class Start(Struct, frozen=True, tag=True, kw_only=True):
    """Run the body of the actor that was prepared last."""

    args: bytes
    key: str
    run_id: str
    generation: int
    attempt: int
    failures: int
    fence: int
    session: str
    deadline: float | None
    told: StopReason | None
    traceback_limit: int
    result_limit: int
    trace: str
    clock_offset: float
    """Seconds that the time of day of this machine is behind the server's."""


class Tell(Struct, frozen=True, tag=True):
    """The run must stop; an async body's await is cancelled as well if it is to be interrupted."""

    reason: StopReason
    interrupt: bool


# -- to the worker ---------------------------------------------------------------------------------------------------


class Ready(Struct, frozen=True, tag=True):
    """The actor is there: a body can start."""


class Broken(Struct, frozen=True, tag=True):
    """The actor cannot be imported; why, as text."""

    kind: str
    message: str
    traceback: str


class Note(Struct, frozen=True, tag=True):
    """Progress."""

    done: float
    total: float | None
    note: str


class Said(Struct, frozen=True, tag=True):
    """A log event, formatted; ``fields`` is a JSON object."""

    logger: str
    level: int
    text: str
    fields: bytes


class Wish(Struct, frozen=True, tag=True):
    """A run that the body asked for. ``task``: JSON, arguments included; None: the same call again."""

    key: str | None
    due: float
    task: bytes | None


class Done(Struct, frozen=True, tag=True):
    """The body has ended, and how."""

    ended: Ended
    spawned: list[Wish]
    rescheduled: Wish | None


ToChild = Prepare | Start | Tell
ToWorker = Ready | Broken | Note | Said | Done

_encoder = msgspec.msgpack.Encoder()
read_in_child = msgspec.msgpack.Decoder(ToChild).decode
read_in_worker = msgspec.msgpack.Decoder(ToWorker).decode


def frame(message: ToChild | ToWorker) -> bytes:
    """A message as it travels."""
    data = _encoder.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


# -- what a body asked for -------------------------------------------------------------------------------------------


def wishes_of(context: Context) -> tuple[list[Wish], Wish | None]:
    """What the body asked for with ``spawn`` and ``reschedule``, checked and encoded."""
    again = context.rescheduled
    return (
        [Wish(s.key, s.due, msgspec.json.encode(s.call.task)) for s in context.spawned],
        None if again is None else Wish(None, again.due, msgspec.json.encode(again.call.task) if again.call else None),
    )


def grant(done: Done, context: Context) -> None:
    """Put what the body asked for in its child onto the context that the outcome is made of."""
    namespace = context.app.namespace
    for wish in done.spawned:
        if wish.task is not None:
            context.spawned.append(Spawned(_call(wish.task, namespace), wish.key, wish.due))
    again = done.rescheduled
    if again is not None:
        call = None if again.task is None else _call(again.task, namespace)
        context.rescheduled = Rescheduled(call, again.due)


def _call(data: bytes, namespace: str) -> Call[object]:
    task = msgspec.json.decode(data, type=Task)
    return Call(task, bytes(task.args), object, namespace)
