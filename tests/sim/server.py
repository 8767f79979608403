"""The server of a simulation: somebody looks over its shoulder, and harm comes to it in the middle of what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.core.records import decode
from tenure.core.subjects import Names, decode_key
from tenure.nats.memory import MemoryServer
from tenure.nats.memory.peer import Peer
from tenure.nats.memory.stream import Stream
from tests.history.evidence import EntrySeen, Revision
from tests.history.reading import entry_of, revision_of
from tests.sim.loop import Fuses
from tests.sim.machine import EPOCH


class FragileServer(MemoryServer):
    """``fuses``: harm that falls between storing a message and answering for it, or between an answer and the next message."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fuses = Fuses()
        self._serving = False

    def publish(self, peer: Peer | None, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """As it is, and then the next step."""
        if peer is None:  # its own, in the middle of another's
            super().publish(peer, subject, reply, headers, data)
            return
        self._serving = True
        super().publish(peer, subject, reply, headers, data)
        self._serving = False
        self.fuses.step()

    def watch(self, names: Names, seen: Callable[[Revision | EntrySeen], None]) -> None:
        """From now on tell ``seen`` of whatever is stored in the runs bucket, and let harm fall after each store."""
        for stream in self.jetstream.streams.values():
            self._watch(stream, seen if stream.name == names.runs_stream else None, len(names.runs_prefix))

    def _watch(self, stream: Stream, seen: Callable[[Revision | EntrySeen], None] | None, skip: int) -> None:
        append = stream.append

        def stored(subject: str, *args: Any, **options: Any) -> Any:
            before = stream.last_of(subject)
            message = append(subject, *args, **options)
            if seen is not None:
                gone, now = "KV-Operation" in message.fields, EPOCH + self.loop.time()
                seen(
                    entry_of(subject[skip:], message.data, seq=message.seq, stored=now, gone=gone)
                    or revision_of(
                        None if gone else decode(message.data),
                        key=decode_key(subject[skip:]),
                        seq=message.seq,
                        before=before,
                        stored=now,  # as exact as all other stamps
                    )
                )
            if self._serving:
                self.fuses.step()
            return message

        stream.append = stored  # type: ignore[method-assign]  # the world looks over the server's shoulder
