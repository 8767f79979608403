"""A process of its own that writes down every revision of every record as it is repeated on the event subjects.

Plain NATS: what is repeated while it is cut off is lost to it; the history stream has that. Run as
``python -m tests.chaos.recorder``; it says ``recording`` once it listens.
"""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import datetime
from pathlib import Path

from nats.aio.msg import Msg

from tenure.core.errors import TenureError
from tenure.core.records import decode
from tenure.core.subjects import decode_key
from tenure.nats.connection import Connection
from tests.chaos.bodies import app
from tests.chaos.journal import Journal
from tests.history.evidence import EntryLine
from tests.history.reading import entry_of, revision_of


async def main() -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    journal = Journal(Path(os.environ["CHAOS_FOLDER"]), "events")
    entries = Journal(Path(os.environ["CHAOS_FOLDER"]), "entries")
    prefix = app.names.event_prefix

    async def received(msg: Msg) -> None:
        headers = msg.headers or {}
        token = msg.subject[len(prefix) :]
        gone = "KV-Operation" in headers
        seq, stored = int(headers["Nats-Sequence"]), _seconds(headers.get("Nats-Time-Stamp", ""))
        entry = entry_of(token, msg.data, seq=seq, stored=stored, gone=gone)
        if entry is not None:
            entries.write(EntryLine(seen=entry))
            return
        journal.write(
            revision_of(
                None if gone else decode(msg.data),
                key=decode_key(token),
                seq=seq,
                before=int(headers.get("Nats-Last-Sequence", "-1")),
                stored=stored,
            )
        )

    while True:
        try:
            conn = await Connection.open(os.environ["TENURE_NATS_URL"], app.config, name="chaos-recorder")
            break
        except TenureError:
            await asyncio.sleep(0.2)  # paused: before the next try to connect
    try:
        await conn.subscribe(prefix + ">", received)
        await conn.raw.flush()
        print("recording", flush=True)
        await stopping.wait()
    finally:
        await conn.close()


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


if __name__ == "__main__":
    asyncio.run(main())
