"""What runs in a child process of a worker (``isolation="process"``): one body at a time, told and heard over a socket.

The interpreter is fresh: it has no session, connection, loop or thread of the worker's. A body runs here as it would in
the worker - async in the loop's task, plain in a thread - through the same ``run_body``. A second thread listens to the
worker, so that a body that blocks its loop still sees ``stop_reason``.

However the worker ends, this process ends at once: the kernel kills it on Linux, and everywhere the closed socket does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, NoReturn

import msgspec

from tenure.actors import Actor
from tenure.context import Context, StopReason
from tenure.core.records import SCHEMA, Failure, Phase, Record
from tenure.isolation import find_actor
from tenure.loops import run_loop
from tenure.telemetry import fields_of
from tenure.tracing import find_tracing
from tenure.worker.body import Ended, Raised, Returned, describe, run_body
from tenure.worker.pipe import (
    LENGTH_BYTES,
    Broken,
    Done,
    Note,
    Prepare,
    Ready,
    Said,
    Start,
    Tell,
    ToChild,
    ToWorker,
    frame,
    read_in_child,
    wishes_of,
)
from tenure.worker.table import Live


def main() -> None:
    """Serve the worker that started this process: ``argv`` is the socket's number and the worker's process id."""
    number, worker = int(sys.argv[1]), int(sys.argv[2])
    del sys.argv[1:]
    if os.getppid() != worker:  # it died before the kernel was asked to tell, and sends nothing any more
        _end()
    os.set_inheritable(number, False)
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, _leave_it_to_the_worker)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a killed body's last lines must not be lost
    run_loop(_serve(socket.socket(fileno=number)))


def _leave_it_to_the_worker(_number: int, _frame: FrameType | None) -> None:
    """Who signals a whole group or control group means the worker, which drains and then ends us.

    A handler, for SIG_IGN would be inherited by the programs that a body starts.
    """


def _end() -> NoReturn:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # what the bodies have started as well
    os._exit(1)


async def _serve(link: socket.socket) -> None:
    child = _Child(link, asyncio.get_running_loop())
    os.register_at_fork(after_in_child=link.close)  # a copy of this process is nobody the worker talks to
    threading.Thread(target=child.listen, name="tenure-child", daemon=True).start()
    while True:
        message = await child.inbox.get()
        if isinstance(message, Prepare):
            child.prepare(message)
        elif isinstance(message, Start):
            await child.run(message)


class _Child:
    def __init__(self, link: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop
        self._sending = threading.Lock()
        self._telling = threading.Lock()
        self._actor: Actor[..., ..., Any, Any] | None = None
        self._live: Live | None = None
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tenure-body")
        self.inbox: asyncio.Queue[ToChild] = asyncio.Queue()

    def send(self, message: ToWorker) -> None:
        """Say something to the worker, from any thread."""
        with self._sending, contextlib.suppress(OSError):  # the worker is gone: ``listen`` ends this process
            self._link.sendall(frame(message))

    # -- in the listening thread -------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Hear the worker until it is gone."""
        try:
            while True:
                message = read_in_child(self._receive(int.from_bytes(self._receive(LENGTH_BYTES), "big")))
                if isinstance(message, Tell):
                    self._tell(message)
                    continue
                if isinstance(message, Start):
                    self._live = Live(message.key, message.run_id, "")
                self._loop.call_soon_threadsafe(self.inbox.put_nowait, message)
        finally:
            _end()

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._link.recv(min(size - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _tell(self, message: Tell) -> None:
        live = self._live
        if live is None:  # the body has just ended
            return
        with self._telling:  # against the moment in which the context is made
            live.tell(message.reason)
        if message.interrupt:
            if live.context is not None:  # now: a body that blocks the loop may look as well
                live.context.interrupt()
            self._loop.call_soon_threadsafe(live.interrupt)

    # -- in the loop -------------------------------------------------------------------------------------------------

    def prepare(self, message: Prepare) -> None:
        """Import the actor."""
        self._actor = None
        try:
            self._actor = find_actor(message.module, message.path, message.name, message.namespace)
        except BaseException as error:  # noqa: BLE001  (whatever the module does when it is imported)
            failure = describe(error, 8_192)
            self.send(Broken(failure.type, failure.message, failure.traceback))
            return
        finally:
            logger = logging.getLogger("tenure")  # after the import, which may have set up logging of its own
            logger.handlers[:] = [_Piped(self)]
            logger.setLevel(message.log_level)
            logger.propagate = False
        self.send(Ready())

    async def run(self, start: Start) -> None:
        """Run the body to its end and say how it ended."""
        actor, live = self._actor, self._live
        if actor is None or actor.home is None or live is None:
            raise RuntimeError("a body is to start before its actor was prepared")
        context = Context(
            app=actor.home.app,
            record=_record(start, actor),
            fence=start.fence,
            session=start.session,
            now=lambda: time.time() + start.clock_offset,
            progress=self._note,
        )
        context.trace = start.trace
        with self._telling:
            told: StopReason | None = live.told or start.told
            live.context = context
            if told is not None:
                live.tell(told)
        body, tracing = run_body(actor, context, live, start.args, self._pool, start.traceback_limit), find_tracing()
        if tracing is not None:  # so that what the body traces belongs to its run
            body = tracing.under(tracing.origin(start.trace), body)
        live.task = task = asyncio.create_task(body)
        ended: Ended = await task
        self._live = None
        if isinstance(ended, Returned) and len(ended.data) > start.result_limit:
            text = f"the result has {len(ended.data)} bytes, at most {start.result_limit} can be stored"
            ended = Raised(Failure(type="InvalidCall", message=text), final=True)
        spawned, rescheduled = wishes_of(context)
        self.send(Done(ended, spawned, rescheduled))

    async def _note(self, _context: Context, done: float, total: float | None, note: str) -> None:
        self.send(Note(float(done), None if total is None else float(total), str(note)))


def _record(start: Start, actor: Actor[..., ..., Any, Any]) -> Record:
    """As much of the record as a context shows."""
    return Record(
        schema=SCHEMA,
        key=start.key,
        run_id=start.run_id,
        generation=start.generation,
        phase=Phase.RUNNING,
        task=actor.task,
        queued_at=0.0,
        attempt=start.attempt,
        failures=start.failures,
        deadline=start.deadline,
    )


class _Piped(logging.Handler):
    """Tenure's log events go to the worker, which shows them as its own."""

    def __init__(self, child: _Child) -> None:
        super().__init__()
        self._child = child

    def emit(self, record: logging.LogRecord) -> None:
        """Send one."""
        fields = msgspec.json.encode(fields_of(record), enc_hook=repr)
        self._child.send(Said(record.name, record.levelno, record.getMessage(), fields))
