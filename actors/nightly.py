"""Example: a folder that is packed every night, and the room on its disk, which is looked at every quarter of an hour.

Nobody submits anything: a supervisor with this code starts both, and any number of them fire each tick once::

    tenure worker actors.nightly:app --with-supervisor
    tenure ls --schedules -n nightly                     # when each is due, what holds it back, how the last one ended
    tenure trigger pack -n nightly                       # now, and tonight all the same
    tenure pause pack --for 24h -n nightly               # not tonight

What it shows:

* **A cron schedule in a time zone.** Half past two comes twice in Berlin in October, and not at all in March: `pack` runs once
  in that night, and at three, right after the gap, in the other.
* **`catch_up="one"`.** After three nights without a worker it is packed once, at once. The room on the disk of last night
  interests nobody: `catch_up="none"`, the default.
* **`autostart=True`.** Each has one chain of runs, under its own name as the key. With another schedule in the code the waiting run
  follows, at the next start of a supervisor; taken out of the code, its chain ends.
* **One run after the other.** A fire never meets the run of the one before.
"""

import os
import shutil
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from tenure import App, Context, Retry

app = App("nightly")
KEPT = 7


class Packed(Struct):
    """An archive that is complete, and the older ones that were removed for it."""

    file: str
    size: int
    removed: int


def folder() -> Path:
    """What is packed: `$NIGHTLY_FOLDER`, default `notes`. The archives lie beside it."""
    return Path(os.environ.get("NIGHTLY_FOLDER", "notes"))


@app.actor(
    cron="30 2 * * *",
    tz="Europe/Berlin",
    catch_up="one",
    autostart=True,
    timeout=timedelta(hours=1),
    retry=Retry(max_attempts=3, initial=60.0, maximum=600.0),
)
def pack(ctx: Context) -> Packed:
    """Pack the folder. An attempt that is cut off leaves no half of an archive under its name, and the next one begins anew."""
    source = folder()
    whole = source.parent / f"{source.name}-{datetime.now(UTC):%Y-%m-%d}-{ctx.generation}.tar.gz"
    part = whole.with_suffix(".part")
    with tarfile.open(part, "w:gz") as archive:
        for file in sorted(source.rglob("*")):
            ctx.check()
            archive.add(file, file.relative_to(source.parent), recursive=False)
    part.replace(whole)
    older = sorted(source.parent.glob(f"{source.name}-*.tar.gz"), key=lambda file: file.stat().st_mtime)[:-KEPT]
    for one in older:
        one.unlink()
    return Packed(whole.name, whole.stat().st_size, len(older))


@app.actor(every=timedelta(minutes=15), autostart=True, retry=None)
def look_at_disk() -> float:
    """How much of the disk is free, from 0 to 1."""
    usage = shutil.disk_usage(folder().parent)
    return usage.free / usage.total
