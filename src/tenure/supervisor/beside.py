"""A supervisor beside a worker, in one process.

In a thread of its own with its own loop and connections: a body that blocks the worker's loop does not keep it from
looking after everybody else's runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from tenure.loops import run_loop
from tenure.supervisor.service import Supervisor


class Beside:
    """Runs ``supervisor`` in a thread. ``on_end`` is called in that thread if it ends by itself, which it never should."""

    def __init__(self, supervisor: Supervisor, on_end: Callable[[], object]) -> None:
        self.supervisor = supervisor
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened = threading.Event()
        self._stopping = False
        self.error: BaseException | None = None
        """What ended it, None while all is well."""
        self._thread = threading.Thread(target=self._run, name="tenure-supervisor", daemon=True)

    def start(self) -> None:
        """Start it and return once it is open. Raises Unavailable or ConfigError. Blocks: before the worker starts."""
        self._thread.start()
        self._opened.wait()
        if self.error is not None:
            self._thread.join()
            raise self.error

    def stop(self) -> None:
        """Stop it and wait for its end, at most as long as a request may take."""
        self._stopping = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(self.supervisor.stop)
        self._thread.join(self.supervisor.app.config.patience_seconds)

    @property
    def why_not_ready(self) -> str:
        """Empty while it is ready."""
        why = self.supervisor.why_not_ready
        return f"supervisor: {why}" if why else ""

    def _run(self) -> None:
        try:
            run_loop(self._main())
        except BaseException as error:  # noqa: BLE001  (told by whoever owns us)
            self.error = error
        finally:
            opened = self._opened.is_set()
            self._opened.set()
            if opened and not self._stopping:
                self._on_end()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self.supervisor as supervisor:
            self._opened.set()
            if not self._stopping:
                await supervisor.run()
