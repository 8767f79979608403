"""The streams of a server, and what is published for JetStream itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.nats.memory.api import Api
from tenure.nats.memory.broker import Subjects
from tenure.nats.memory.consumer import Consumer
from tenure.nats.memory.publish import publish
from tenure.nats.memory.pulls import read_pull
from tenure.nats.memory.stream import Stream

if TYPE_CHECKING:
    from tenure.nats.memory.server import MemoryServer

_API = "$JS.API."
_ACK = "$JS.ACK."
_NEXT = "CONSUMER.MSG.NEXT."
_ACK_TOKENS = 9


class JetStream:
    """Streams and consumers of one server."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.streams: dict[str, Stream] = {}
        self.by_subject: Subjects[Stream] = Subjects()
        self._pushing: dict[str, dict[Consumer, None]] = {}
        self._api = Api(self)

    def take(self, subject: str, reply: str, headers: bytes, data: bytes) -> bool:
        """Whether a message was for JetStream, or for a stream; then it is answered, too."""
        if subject.startswith("$JS."):
            if subject.startswith(_ACK):
                return self._acked(subject, reply, data)
            if subject.startswith(_API):
                return self._asked(subject[len(_API) :], reply, data)
        streams = self.by_subject.match(subject)
        for stream in streams:
            answer = publish(stream, subject, headers, data)
            if reply:
                self._answer(reply, answer)
        return bool(streams)

    def _answer(self, reply: str, data: bytes, headers: bytes = b"") -> None:
        self.server.broker.deliver(reply, reply, "", headers, data)

    def _acked(self, subject: str, reply: str, data: bytes) -> bool:
        parts = subject.split(".")
        if len(parts) != _ACK_TOKENS or not parts[5].isdigit():
            return False
        consumer = self.consumer(parts[2], parts[3])
        if consumer is None:
            return False
        if consumer.answer(int(parts[5]), data) and reply:
            self._answer(reply, b"")
        return True

    def _asked(self, call: str, reply: str, data: bytes) -> bool:
        if not reply:
            return True
        if call.startswith(_NEXT):
            stream, _, name = call[len(_NEXT) :].partition(".")
            consumer = self.consumer(stream, name)
            if consumer is None or consumer.pushes_to:
                return False
            pull = read_pull(reply, data, self.server.loop.time())
            if isinstance(pull, bytes):
                self._answer(reply, b"", pull)
            else:
                consumer.pull(pull)
            return True
        answer = self._api.answer(call, data)
        if answer is None:
            return call.partition(".")[0] in {"STREAM", "CONSUMER"}  # heard, and not answered
        self._answer(reply, *answer)
        return True

    # -- streams and consumers ---------------------------------------------------------------------------------------

    def consumer(self, stream: str, name: str) -> Consumer | None:
        """A consumer by name."""
        found = self.streams.get(stream)
        return found.consumers.get(name) if found else None

    def add_stream(self, stream: Stream) -> None:
        """Have it take what is published, or, a mirror, what its origin holds and takes."""
        self.streams[stream.name] = stream
        for mirror in self.streams.values():
            origin = self.streams.get((mirror.config.get("mirror") or {}).get("name", ""))
            if origin is not None and stream in {mirror, origin}:
                origin.mirrors[mirror.name] = mirror
                for message in origin.messages.values():
                    mirror.copy(message)
        for subject in stream.config["subjects"]:
            self.by_subject.add(subject, stream)

    def delete_stream(self, stream: Stream) -> None:
        """Delete a stream and its consumers."""
        for consumer in list(stream.consumers.values()):
            self.delete_consumer(consumer)
        for subject in stream.config["subjects"]:
            self.by_subject.remove(subject, stream)
        stream.close()
        for origin in self.streams.values():
            origin.mirrors.pop(stream.name, None)
        del self.streams[stream.name]

    def add_consumer(self, consumer: Consumer) -> None:
        """Have it deliver."""
        consumer.stream.consumers[consumer.name] = consumer
        if consumer.pushes_to:
            self._pushing.setdefault(consumer.pushes_to, {})[consumer] = None
        consumer.kick_soon()

    def delete_consumer(self, consumer: Consumer, *, told: bool = True) -> None:
        """Delete a consumer."""
        del consumer.stream.consumers[consumer.name]
        others = self._pushing.get(consumer.pushes_to, {})
        others.pop(consumer, None)
        if not others:
            self._pushing.pop(consumer.pushes_to, None)
        consumer.close(told=told)

    def interest_changed(self, subject: str) -> None:
        """Somebody began or ceased to listen to ``subject``."""
        for consumer in list(self._pushing.get(subject, ())):
            consumer.interest_changed()

    # -- kill and start ----------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Nobody waits any more; consumers that are not kept on disk are gone."""
        for stream in self.streams.values():
            for consumer in list(stream.consumers.values()):
                if consumer.lasts:
                    consumer.pulls.close(told=False)
                else:
                    self.delete_consumer(consumer, told=False)

    def recover(self) -> None:
        """Go on with what was stored."""
        for stream in self.streams.values():
            stream.recover()
            for consumer in stream.consumers.values():
                consumer.recover()
