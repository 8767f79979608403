"""Example: a perpetual check whose interval is changed while it runs.

    async with app.connect() as client:
        key = "watch-log"
        await client.submit(check.call("/var/log"), key=key)                   # every 2 s, for ever
        print((await client.status(key)).generation)                           # rises by one with every check
        await client.replace(check.call("/var/log", interval=0.5), key=key)    # from now on every 0.5 s
        await client.cancel(key, reason="seen enough")                         # ends the chain, whatever its phase

Each check is one generation of the key. Its outcome and its successor (generation + 1, with its due time) are stored in
one write, so the chain neither breaks nor doubles, whatever crashes; a check that fails has a successor too.

The race that this must survive (docket#331): check A of the old schedule is slow, a network mount hangs, say. While
it runs, `replace` sets the new schedule B, and B's first check is done before A ends. If A's end now set up "again in
2 s with the old arguments", the replacement would be lost, silently and for ever. Here it cannot: `replace` raised
the generation, and A's end is a compare-and-swap by the holder of the *old* generation. The store refuses it: no
outcome, no retry, no successor, `ctx.reschedule` included. The body has nothing to check; it only says what it wants
next. `replace` also tells A to stop; with `overlap="stop"` (the default) B starts when A has ended or its grace is up.
"""

import asyncio
import math
import os
import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from tenure import App, Context, Fail, Retry

__all__ = ["Check", "app", "check", "probe"]

app = App("monitor")


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one check saw: sizes in bytes, times in UTC.

    `kind` is file, folder, other, missing or forbidden; `size` and `modified` are None for the last two. `free` is what
    an unprivileged user may still write to the target's filesystem (for a missing target: its nearest parent's).
    """

    target: str
    kind: str
    size: int | None
    modified: datetime | None
    free: int | None
    checked: datetime


@app.actor(every=timedelta(seconds=2), timeout=10.0, retry=Retry(max_attempts=2, initial=0.2, maximum=1.0))
async def check(ctx: Context, target: str, interval: float | None = None) -> Check:
    """Look at the path `target`, and again after `interval` seconds (None: the 2 s of the actor).

    A target that is missing or forbidden is a finding, not a failure. Raises `Fail` for an `interval` that is no
    positive number of seconds, and `OSError` (retried once) when the filesystem does not answer properly.
    """
    if interval is not None:
        if not (math.isfinite(interval) and interval > 0):
            raise Fail(f"interval must be seconds > 0, not {interval}")
        ctx.reschedule(delay=interval)  # stored with this run's outcome, or not at all
    return await asyncio.to_thread(probe, target)  # a hung mount must not block the event loop


def probe(target: str) -> Check:
    """Look at a path once; blocks for as long as its filesystem does."""
    path = Path(target)
    status, kind = _look(path)
    return Check(
        target=target,
        kind=kind,
        size=None if status is None else status.st_size,
        modified=None if status is None else datetime.fromtimestamp(status.st_mtime, UTC),
        free=_free_bytes(path),
        checked=datetime.now(UTC),
    )


def _look(path: Path) -> tuple[os.stat_result | None, str]:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None, "missing"
    except PermissionError:
        return None, "forbidden"
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder"}
    return status, kinds.get(stat.S_IFMT(status.st_mode), "other")


def _free_bytes(path: Path) -> int | None:
    for place in (path, *path.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
    return None
