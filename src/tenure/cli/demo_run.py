"""Behind ``demo``.

Real documents on four workers, two of which are cut down; a monitor on a fifth; with replaces and cancels in mid-run.

It ends with an account.

Owns processes and folders: the embedded server, the supervisor, the workers, the temporary store. Whatever happens, they are gone at
the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.cli.children import Child, Ready
from tenure.cli.demo_crash import CrashStory
from tenure.cli.demo_ledger import Ledger
from tenure.cli.demo_report import Metrics, Report, counts_of, make_report, refined_key, stale_writes
from tenure.cli.demo_story import LEAST_DOCUMENTS, MONITOR_KEY, VICTIMS, DocumentStory, MonitorStory, Role, cast
from tenure.cli.parsing import load_app
from tenure.client import Client
from tenure.core.errors import ConfigError, Unavailable
from tenure.core.records import Phase
from tenure.loops import run_loop
from tenure.nats.embedded import EmbeddedServer

if TYPE_CHECKING:
    from rich.progress import Progress

_DOCUMENTS, _MONITOR = "tenure.examples.documents:app", "tenure.examples.monitor:app"
_WORKERS, _SLOTS = 2, 8
_LOOK_SECONDS = 0.1
_SILENCE_SECONDS = 3.0
_FINISH_SECONDS = 300.0
_SETTLE_SECONDS = 15.0
_STOP_SECONDS = 45.0


def play(folder: Path | None, limit: int, *, keep: bool) -> Report:
    """Run the demonstration and return its account. Raises ConfigError, Unavailable, TenureError."""
    with _scratch(keep=keep) as scratch, EmbeddedServer(scratch / "store") as server, _progress() as progress:
        try:
            return run_loop(_Demo(server.url, scratch, progress).run(folder, limit))
        except asyncio.CancelledError:  # SIGTERM: the same end as Ctrl-C
            raise KeyboardInterrupt from None


@contextlib.contextmanager
def _scratch(*, keep: bool) -> Iterator[Path]:
    scratch = Path(tempfile.mkdtemp(prefix="tenure-demo-"))
    try:
        yield scratch
    finally:
        if keep:
            print(f"store and logs are kept in {scratch}", file=sys.stderr)
        else:
            shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with progress:
        yield progress


class _Demo:
    """One demonstration."""

    def __init__(self, url: str, scratch: Path, progress: Progress) -> None:
        self._url = url
        self._scratch = scratch
        self._progress = progress
        self._bar = progress.add_task("starting", total=None)
        self._children: list[Child] = []
        self._addresses: dict[str, str] = {}
        self._crash: CrashStory | None = None

    async def run(self, folder: Path | None, limit: int) -> Report:
        """Everything, from the first process to the last number."""
        documents_app, monitor_app = load_app(_DOCUMENTS), load_app(_MONITOR)
        cast_of = await asyncio.to_thread(_find, folder, limit)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
        documents, watch = Ledger(), Ledger()
        async with (
            documents_app.connect(self._url) as client,
            monitor_app.connect(self._url) as watching,
            _written_down(client, documents),
            _written_down(watching, watch),
        ):
            try:
                started = loop.time()
                story = DocumentStory(client, documents, documents_app.actors["extract"], cast_of)
                crash = await self._start_victims(client, story)
                ready = await self._start_workers()
                monitor = MonitorStory(watching, watch, monitor_app.actors["check"], ready[-1].pid)
                async with asyncio.TaskGroup() as group:
                    group.create_task(_one_after_the_other(crash.play(), story.play()))
                    group.create_task(monitor.play(str(folder or Path.cwd())))
                    group.create_task(self._finished(client, story, documents))
                await monitor.end()
                await self._until_over(watching, watch, [MONITOR_KEY])
                seconds = loop.time() - started
                metrics = await self._settled([documents, watch], crash.cut_down)
                stale = await stale_writes(client, story, documents)
            finally:
                if self._crash is not None:
                    self._crash.let_go()
                codes = await self._stop_workers()
        return make_report(
            story, monitor, crash, (documents, watch), metrics, stale=stale, seconds=seconds, codes=codes
        )

    # -- processes ---------------------------------------------------------------------------------------------------

    async def _start(self, name: str, target: str, *more: str, command: str = "worker") -> Ready:
        arguments = [target, "--url", self._url, "--metrics-port", "0", *more]
        child = Child(arguments, command=command, log=self._scratch / f"{name}.log")
        self._children.append(child)
        await child.start()
        ready = await child.ready()
        self._addresses[name] = ready.metrics or ""
        return ready

    async def _start_victims(self, client: Client, story: DocumentStory) -> CrashStory:
        """The supervisor, and the two workers that will be cut down: full of runs, before others could take these."""
        victims = [document for document in story.documents if document.role is Role.CUT_DOWN]
        slots = ("--concurrency", str(len(victims) // VICTIMS))
        names = ("killed", "frozen")
        _, killed, frozen = await asyncio.gather(
            self._start("supervisor", _DOCUMENTS, command="supervisor"),
            *(self._start(name, _DOCUMENTS, *slots) for name in names),
        )
        crash = CrashStory(client, victims, killed.pid, frozen.pid)
        await story.submit(victims)
        self._crash = crash  # whatever happens from here on, the frozen one must be let go
        await crash.strike()
        del self._addresses["killed"]  # it will not answer any more, and has counted nothing that matters
        return crash

    async def _start_workers(self) -> list[Ready]:
        """The workers that do the rest: two for documents, and the monitor's."""
        slots = ("--concurrency", str(_SLOTS))
        return await asyncio.gather(
            *(self._start(f"worker-{number}", _DOCUMENTS, *slots) for number in range(1, _WORKERS + 1)),
            self._start("worker-monitor", _MONITOR, *slots),
        )

    async def _stop_workers(self) -> list[int]:
        children, self._children = self._children, []
        return list(await asyncio.gather(*(child.stop(_STOP_SECONDS) for child in children)))

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _finished(self, client: Client, story: DocumentStory, ledger: Ledger) -> None:
        """Wait until every document's newest run and what it spawned have ended."""
        keys = [document.key for document in story.documents]

        def open_keys() -> list[str]:
            pending = []
            for key in keys:
                if not ledger.is_over(key):
                    pending.append(key)
                    continue
                record = ledger.record(key)
                if record is not None and record.phase is Phase.SUCCEEDED and not ledger.is_over(refined_key(key)):
                    pending.append(refined_key(key))
            done = len(keys) - len(pending)
            self._progress.update(self._bar, description="documents", total=len(keys), completed=done)
            unacted = any(d.run is None for d in story.documents) or len(ledger.current) < len(keys)
            return pending or ([keys[0]] if unacted else [])

        await self._until(client, ledger, open_keys)

    async def _until_over(self, client: Client, ledger: Ledger, keys: list[str]) -> None:
        await self._until(client, ledger, lambda: [key for key in keys if not ledger.is_over(key)])

    async def _until(self, client: Client, ledger: Ledger, pending: Any) -> None:
        """Wait until nothing is pending. When the events fall silent, the records are read: an event may be lost."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _FINISH_SECONDS
        heard, silent_since = 0, loop.time()
        while keys := pending():
            now = loop.time()
            if now > until:
                raise Unavailable(f"the demonstration did not end: {len(keys)} keys are unfinished, e.g. {keys[0]!r}")
            if len(ledger.current) + len(ledger.runs) + ledger.bodies != heard:
                heard, silent_since = len(ledger.current) + len(ledger.runs) + ledger.bodies, now
            elif now - silent_since > _SILENCE_SECONDS:
                for key in keys:
                    ledger.note(key, await client.stores.runs.read(key))
                silent_since = loop.time()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _settled(self, ledgers: list[Ledger], cut_down: int) -> Metrics:
        """Counters, once the last stale wake-ups have arrived and been refused.

        Whatever they are when patience ends.
        """
        self._progress.update(self._bar, description="counting", total=None)
        loop = asyncio.get_running_loop()
        until = loop.time() + _SETTLE_SECONDS
        while True:
            metrics = await Metrics.scrape(list(self._addresses.values()))
            if metrics.counts(cut_down) == counts_of(ledgers) or loop.time() > until:
                return metrics
            await asyncio.sleep(_LOOK_SECONDS)


async def _one_after_the_other(crash: Coroutine[Any, Any, None], story: Coroutine[Any, Any, None]) -> None:
    """The takeovers first: behind three hundred documents their times would tell of the queue."""
    try:
        await crash
    except BaseException:
        story.close()
        raise
    await story


def _find(folder: Path | None, limit: int) -> list[Any]:
    """Documents and their roles; in a thread, because it walks a file system."""
    from tenure.examples.documents import find_documents

    if folder is not None and not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}")
    paths = find_documents(folder, limit)
    if len(paths) < LEAST_DOCUMENTS:
        where = f"in {folder}" if folder is not None else "on this machine"
        raise ConfigError(f"found {len(paths)} documents {where}; the demonstration needs at least {LEAST_DOCUMENTS}")
    return cast(paths, None if folder is None else folder.absolute())


@asynccontextmanager
async def _written_down(client: Client, ledger: Ledger) -> AsyncIterator[None]:
    stop = await client.stores.runs.follow_all(ledger.note)
    try:
        yield
    finally:
        await stop()
