"""``dev``: a server and a worker with a supervisor in one terminal; the worker starts anew whenever a Python file of the app changes.

Files are looked at, not watched: a few hundred ``stat`` calls twice a second need no dependency and work on every file
system.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tenure.cli import options as o
from tenure.cli.children import Child
from tenure.cli.parsing import load_app
from tenure.cli.problems import Exit, ports_explained
from tenure.cli.worker import stopped_by_signals
from tenure.loops import run_loop
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.urls import check_url

_LOOK_SECONDS = 0.5
_DRAIN_SECONDS = 60.0
_MOST_FILES = 10_000


def dev(
    target: o.Target,
    *,
    queue: o.Queues = None,
    concurrency: o.Concurrency = 100,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", metavar="DIR", help="Where the server's data live. Default: gone at the end.", show_default=False
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="The server's port; 0: a free one.")] = 4222,
    url: o.Url = None,
    log_level: o.Level = o.LogLevel.INFO,
) -> int:
    """Run a server (unless --url or $TENURE_NATS_URL names one), and a worker with a supervisor, anew at each change of code."""
    if url:
        check_url(url)
    folder = _folder_of(target)
    arguments = [target, "--with-supervisor", "--concurrency", str(concurrency), "--log-level", log_level.value]
    for name in queue or ():
        arguments += ["--queue", name]
    with contextlib.ExitStack() as stack:
        if not url:
            server = stack.enter_context(_server(store, port))
            url = server.url
            print(f"NATS at {url}, monitoring at {server.monitor_url}", flush=True)
        return run_loop(_reload([*arguments, "--url", url], folder))


@contextlib.contextmanager
def _server(store: Path | None, port: int) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(store, port=port)
    with ports_explained("set TENURE_NATS_URL to use the server there, "):
        server.start()
    try:
        yield server
    finally:
        server.stop()


def _folder_of(target: str) -> Path:
    """The folder whose files are looked at: the top package's, or the one that holds a single module."""
    first = target.partition(":")[0].partition(".")[0]
    here = Path.cwd()
    if (here / first).is_dir():
        return here / first
    if (here / f"{first}.py").is_file():
        return here
    load_app(target)  # raises the sentence for what cannot be found at all
    return Path(sys.modules[first].__file__ or here).parent


def stamps(folder: Path) -> dict[str, int]:
    """Time of last change of each Python file below ``folder``; hidden folders and environments are not the app's."""
    found: dict[str, int] = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__pycache__")) and not Path(root, name, "pyvenv.cfg").exists()
        ]
        for name in files:
            if name.endswith(".py") and len(found) < _MOST_FILES:
                path = Path(root, name)
                with contextlib.suppress(OSError):  # gone between two looks
                    found[str(path)] = path.stat().st_mtime_ns
    return found


async def _reload(arguments: list[str], folder: Path) -> int:
    stopping = asyncio.Event()
    with stopped_by_signals(stopping.set):
        while not stopping.is_set():
            before = await asyncio.to_thread(stamps, folder)
            child = Child(arguments)
            await child.start()
            try:
                await _until_changed(child, folder, before, stopping)
            finally:
                await child.stop(_DRAIN_SECONDS)
    return Exit.OK


async def _until_changed(child: Child, folder: Path, before: dict[str, int], stopping: asyncio.Event) -> None:
    """Return once a file has changed or we must stop. A worker that has ended by itself waits for a change too."""
    told = False
    while not stopping.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await stopping.wait()
        now = await asyncio.to_thread(stamps, folder)
        if now != before:
            changed = sorted(path for path in now.keys() | before.keys() if now.get(path) != before.get(path))
            print(f"{Path(changed[0]).name} changed: restarting the worker", flush=True)
            return
        code = child.process.returncode
        if code is not None and not told:
            told = True
            print(f"the worker ended with exit code {code}; it starts anew when a file in {folder} changes", flush=True)
