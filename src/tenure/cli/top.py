"""``top``: queues, actors and sessions, live in the terminal. It changes nothing.

Rates are told from the writes of records as the server repeats them (``tally``), so no process need be scraped; queues and
sessions from what is stored. A picture is drawn over the one before on the terminal's other screen, in one write: nothing
flickers, and what was there before is there again at the end.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer

from tenure.app import default_url
from tenure.cli import options as o
from tenure.cli.output import print_json
from tenure.cli.parsing import duration
from tenure.cli.problems import Exit
from tenure.cli.tally import Tally
from tenure.cli.top_frame import WIDTH, Frame, actor_rows, draw, totals
from tenure.client import Client
from tenure.core.errors import ConfigError, Unavailable
from tenure.core.records import read_state
from tenure.loops import run_loop
from tenure.nats.scan import Header
from tenure.nats.sessions import SeenSession
from tenure.nats.urls import without_secrets
from tenure.overview import QueueRow, SessionRow, parked_runs, queue_rows, session_row

_WINDOW_SECONDS = 5.0
_LEAST_SECONDS, _MOST_SECONDS = 0.1, 3600.0
_UNSERVED_EVERY = 10
"""Pictures between two looks for queues that no worker ever worked on, which may list every wake-up, and for what is parked where"""
_FEW = 1_000
"""so many were: they are listed."""


def top(
    *,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="From picture to picture: 500ms, 1s, 10s.")
    ] = "1s",
    once: Annotated[
        bool, typer.Option("--once", help="Look on for that long, print one picture and end.", show_default=False)
    ] = False,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Watch queues, actors and sessions live in the terminal, until Ctrl-C.

    Queues: what waits by priority, what is in workers' hands, how long the oldest has waited. Actors: runs that are claimed now (their
    bodies run; under a limit the next ones are claimed already, and wait for their place in the worker), runs that
    are parked (for a limit, a pause or a block), and how many a second started, ended well, are tried again, failed for good, were
    cancelled or superseded. Sessions: who lives, and how
    many runs each holds. With --json each picture is one line; in a pipe they follow each other.
    """
    the_app = o.app_for(namespace, app)
    seconds = duration(every, "--every") or 0.0
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise ConfigError(f"--every {every!r}: give between 100ms and 1h")
    address = without_secrets(url or default_url())

    async def main() -> int:
        async with o.looking(the_app, url) as client, watching(client, address) as scene:
            show, end = _shower(as_json=as_json, once=once)
            try:
                while True:
                    await asyncio.sleep(seconds)
                    show(await scene.frame(keep_on=not once))
                    if once:
                        return Exit.OK
            finally:
                end()

    try:
        with _quiet():
            return run_loop(main())
    except KeyboardInterrupt:  # there is no other end to it
        return Exit.OK


@contextmanager
def _quiet() -> Iterator[None]:
    """Lines of a log would be written across the picture; what matters of them, that no server answers, the picture tells."""
    log = logging.getLogger("tenure")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


class Scene:
    """What is followed, and the pictures of it."""

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self._address = address
        self._clock = client.stores.clock
        self._since = self._clock.steady()
        self._drawn = 0
        self._queues: list[QueueRow] = []
        self._unserved: list[QueueRow] = []
        self._parked: Counter[str] = Counter()
        self.sessions: dict[str, SeenSession] = {}
        self.tally = Tally(_WINDOW_SECONDS)

    def saw(self, seen: SeenSession) -> None:
        """A session was renewed or closed."""
        if seen.session.closed is None:
            self.sessions[seen.session.id] = seen
        else:
            self.sessions.pop(seen.session.id, None)

    async def begin(self) -> None:
        """Pass over what is there already: who runs, and who holds. Raises Unavailable."""
        tally = self.tally

        def on_header(header: Header) -> None:
            state = read_state(header.state)
            if state is not None:
                tally.found(header.key, header.revision, state)

        await self._client.stores.runs.scan(on_header)
        tally.mark(self._clock.steady())

    async def frame(self, *, keep_on: bool) -> Frame:
        """A picture of now. With ``keep_on`` a server that does not answer is told in it; else raises Unavailable."""
        trouble, stores = "", self._client.stores
        steady, now = self._clock.steady(), self._clock.now()
        self.tally.mark(steady)
        known = {actor.task.queue for actor in self._client.app.actors.values()}
        try:
            everything = self._drawn % _UNSERVED_EVERY == 0
            self._queues = await queue_rows(
                stores, self._session_rows(now), known if everything else (), unserved=everything
            )
            self._unserved = _kept(self._queues, self._unserved, everything=everything)
            if everything or self._parked.total() <= _FEW:
                self._parked = await parked_runs(stores)
        except Unavailable as error:
            if not keep_on:
                raise
            trouble = f"no answer from the server: {error}"
        self._drawn += 1
        seconds, actors = actor_rows(self.tally, self._parked, self._client.app.actors)
        served = {row.queue for row in self._queues}
        return Frame(
            namespace=self._client.app.namespace,
            url=self._address,
            server=stores.conn.server_version,
            at=datetime.fromtimestamp(now, UTC),
            seconds=seconds,
            since_seconds=round(steady - self._since, 1),
            queues=self._queues + [row for row in self._unserved if row.queue not in served],
            actors=actors,
            sessions=self._session_rows(now),
            totals=totals(self.tally),
            blocked=self._parked[""],
            trouble=trouble,
        )

    def _session_rows(self, now: float) -> list[SessionRow]:
        held = self.tally.held()
        rows = (session_row(seen, now, held) for seen in self.sessions.values())
        return sorted(rows, key=lambda row: row.started_at)


def _kept(rows: list[QueueRow], before: list[QueueRow], *, everything: bool) -> list[QueueRow]:
    """Queues that nobody works on, from one look for them to the next."""
    return [row for row in rows if not row.workers] if everything else before


@asynccontextmanager
async def watching(client: Client, address: str) -> AsyncIterator[Scene]:
    """Follow a namespace, to make pictures of it. Raises Unavailable."""
    scene, stores = Scene(client, address), client.stores
    async with AsyncExitStack() as ends, asyncio.TaskGroup() as group:
        loaded = asyncio.Event()
        watching = group.create_task(stores.sessions.watch_all(scene.saw).run(loaded))
        try:
            ends.push_async_callback(
                await stores.runs.follow_all(lambda key, found: scene.tally.wrote(key, found.revision, found.record))
            )
            await scene.begin()
            await loaded.wait()
            yield scene
        finally:
            watching.cancel()


def _shower(*, as_json: bool, once: bool) -> tuple[Callable[[Frame], None], Callable[[], None]]:
    """How a picture is shown, and what to do after the last."""
    if as_json:
        return print_json, lambda: None
    from rich.console import Console
    from rich.live import Live

    live = sys.stdout.isatty() and not once
    console = Console(width=None if live else WIDTH)
    if not live:
        return lambda frame: console.print(draw(frame)), lambda: None
    screen = Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop")
    screen.start()
    return lambda frame: screen.update(draw(frame, console.height), refresh=True), screen.stop
