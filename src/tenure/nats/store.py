"""The folder of a server's data: held by one server at a time, for two would ruin each other's files.

The lock belongs to the open file, which the server inherits: it lasts exactly as long as that process may write, also when
its parent is gone, and the kernel takes it back however the process ends. So there is no stale lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from tenure.core.errors import ConfigError

_LOCK = "tenure.lock"
_DYING_SECONDS = 2.0
"""A server whose parent was killed is killed in turn: so long it may take to be gone."""
_POLL_SECONDS = 0.02


@contextlib.contextmanager
def made(what: str) -> Iterator[None]:
    """ConfigError, naming ``what``, for a file or folder that cannot be made or opened."""
    try:
        yield
    except OSError as error:
        why = "it is not a folder" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise ConfigError(f"{what} cannot be used: {why or error}") from error


@contextlib.contextmanager
def hold(store: Path) -> Iterator[int]:
    """The lock of ``store``, which is made if it is not there: a file descriptor for its server to inherit.

    Raises ConfigError if another server holds it, or it cannot be used.
    """
    with made(f"the store {store}"):
        store.mkdir(parents=True, exist_ok=True)
        file = (store / _LOCK).open("ab")
    with file:
        deadline = time.monotonic() + _DYING_SECONDS
        while not _locked(store, file.fileno()):
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"the store {store} is in use by another nats-server: stop that one, or take another folder"
                )
            time.sleep(_POLL_SECONDS)
        yield file.fileno()


def _locked(store: Path, file: int) -> bool:
    with made(f"the store {store}"):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
