"""``$JS.API``: what JetStream answers to whoever manages streams and consumers, or looks up messages."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.nats.memory import consumer as consumers
from tenure.nats.memory.broker import overlap
from tenure.nats.memory.consumer import Consumer
from tenure.nats.memory.refusals import Refused, bad_request, no_consumer, no_message, no_stream, refuse
from tenure.nats.memory.stored import Stored, add_fields, write_fields, write_time
from tenure.nats.memory.stream import Stream, settle

if TYPE_CHECKING:
    from tenure.nats.memory.jetstream import JetStream

_PAGE = 100_000
_LIST = 256
_NAMES = 1_024
_KIND = "io.nats.jetstream.api.v1."
_KINDS = {
    "STREAM.CREATE": "stream_create",
    "STREAM.UPDATE": "stream_update",
    "STREAM.INFO": "stream_info",
    "STREAM.DELETE": "stream_delete",
    "STREAM.PURGE": "stream_purge",
    "STREAM.LIST": "stream_list",
    "STREAM.NAMES": "stream_names",
    "STREAM.MSG.GET": "stream_msg_get",
    "STREAM.MSG.DELETE": "stream_msg_delete",
    "CONSUMER.CREATE": "consumer_create",
    "CONSUMER.DURABLE.CREATE": "consumer_create",
    "CONSUMER.INFO": "consumer_info",
    "CONSUMER.DELETE": "consumer_delete",
    "CONSUMER.LIST": "consumer_list",
    "CONSUMER.NAMES": "consumer_names",
    "INFO": "account_info",
}
Body = dict[str, Any]


class Api:
    """Answers by call; see ``answer``."""

    def __init__(self, jetstream: JetStream) -> None:
        self._js = jetstream
        self._calls: dict[str, Callable[[str, Body], Body]] = {
            "STREAM.CREATE": self._stream_create,
            "STREAM.UPDATE": self._stream_update,
            "STREAM.INFO": self._stream_info,
            "STREAM.DELETE": self._stream_delete,
            "STREAM.PURGE": self._stream_purge,
            "STREAM.LIST": self._stream_list,
            "STREAM.NAMES": self._stream_names,
            "STREAM.MSG.GET": self._msg_get,
            "STREAM.MSG.DELETE": self._msg_delete,
            "CONSUMER.CREATE": self._consumer_create,
            "CONSUMER.DURABLE.CREATE": self._consumer_create,
            "CONSUMER.INFO": self._consumer_info,
            "CONSUMER.DELETE": self._consumer_delete,
            "CONSUMER.LIST": self._consumer_list,
            "CONSUMER.NAMES": self._consumer_names,
            "INFO": self._account,
        }

    def answer(self, call: str, data: bytes) -> tuple[bytes, bytes] | None:
        """Data and headers of the answer to ``$JS.API.<call>``; None if nobody answers that."""
        if call.startswith("DIRECT.GET."):
            return self._direct_get(call.removeprefix("DIRECT.GET."), data)
        name = next((name for name in self._calls if call == name or call.startswith(name + ".")), None)
        if name is None:
            return None
        kind: Body = {"type": f"{_KIND}{_KINDS[name]}_response"}
        try:
            answer = kind | self._calls[name](call[len(name) + 1 :], self._body(data))
        except Refused as error:
            answer = kind | {"error": msgspec.structs.asdict(error.refusal)}
        return msgspec.json.encode(answer), b""

    def _body(self, data: bytes) -> Body:
        if not data.strip():
            return {}
        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise refuse(400, 10025, f"invalid JSON: {error}") from error

    def _now(self) -> str:
        return write_time(self._js.server.now())

    def _stream(self, name: str) -> Stream:
        stream = self._js.streams.get(name)
        if stream is None:
            raise no_stream()
        return stream

    def _account(self, _rest: str, _body: Body) -> Body:
        streams = self._js.streams.values()
        return {
            "memory": 0,
            "storage": sum(stream.size for stream in streams),
            "streams": len(streams),
            "consumers": sum(len(stream.consumers) for stream in streams),
            "limits": {"max_memory": -1, "max_storage": -1, "max_streams": -1, "max_consumers": -1},
            "api": {"level": 5, "total": 0, "errors": 0},
        }

    # -- streams -----------------------------------------------------------------------------------------------------

    def _stream_create(self, name: str, body: Body) -> Body:
        if body.get("name") != name:
            raise refuse(400, 10056, "stream name in subject does not match request")
        config = settle(body)
        existing = self._js.streams.get(name)
        if existing is not None:
            if existing.config != config:
                raise refuse(400, 10058, "stream name already in use with a different configuration")
            return self._described(existing)
        self._check_subjects(name, config["subjects"])
        stream = Stream(self._js.server, config)
        self._js.add_stream(stream)
        return self._described(stream)

    def _check_subjects(self, name: str, subjects: list[str]) -> None:
        for other in self._js.streams.values():
            for theirs in other.config["subjects"]:
                if other.name != name and any(overlap(mine, theirs) for mine in subjects):
                    raise refuse(400, 10065, "subjects overlap with an existing stream")

    def _stream_update(self, name: str, body: Body) -> Body:
        stream = self._stream(name)
        config = settle(body)
        for fixed, called in (("retention", "retention policy"), ("storage", "storage type")):
            if config[fixed] != stream.config[fixed]:
                raise refuse(500, 10052, f"stream configuration update can not change {called}")
        self._check_subjects(name, config["subjects"])
        for subject in stream.config["subjects"]:
            self._js.by_subject.remove(subject, stream)
        stream.config = config
        self._js.add_stream(stream)
        stream.retime()
        return self._described(stream)

    def _described(self, stream: Stream) -> Body:
        return {
            "config": stream.config,
            "created": stream.created,
            "state": stream.state(),
            "cluster": {"leader": self._js.server.name},
            "ts": self._now(),
        }

    def _stream_info(self, name: str, body: Body) -> Body:
        stream = self._stream(name)
        answer = self._described(stream) | {"total": 0, "offset": 0, "limit": 0}
        wanted = body.get("subjects_filter")
        if wanted:
            offset = int(body.get("offset", 0))
            found = sorted(stream.subjects(wanted))
            page = {subject: len(stream.by_subject[subject]) for subject in found[offset : offset + _PAGE]}
            if page:
                answer["state"]["subjects"] = page
            if found:
                answer |= {"total": len(found), "offset": offset, "limit": _PAGE}
        return answer

    def _stream_delete(self, name: str, _body: Body) -> Body:
        self._js.delete_stream(self._stream(name))
        return {"success": True}

    def _stream_purge(self, name: str, body: Body) -> Body:
        stream = self._stream(name)
        if stream.config["deny_purge"]:
            raise refuse(500, 10110, "stream purge not permitted")
        purged = stream.purge(body.get("filter") or ">", int(body.get("seq", 0)), int(body.get("keep", 0)))
        return {"success": True, "purged": purged}

    def _stream_list(self, _rest: str, body: Body) -> Body:
        offset = int(body.get("offset", 0))
        found = [self._described(self._js.streams[name]) for name in sorted(self._js.streams)]
        return {"total": len(found), "offset": offset, "limit": _LIST, "streams": found[offset : offset + _LIST]}

    def _stream_names(self, _rest: str, body: Body) -> Body:
        offset, wanted = int(body.get("offset", 0)), body.get("subject") or ">"
        found = sorted(
            name
            for name, stream in self._js.streams.items()
            if any(overlap(wanted, subject) for subject in stream.config["subjects"])
        )
        return {"total": len(found), "offset": offset, "limit": _NAMES, "streams": found[offset : offset + _NAMES]}

    # -- messages ----------------------------------------------------------------------------------------------------

    def _find(self, stream: Stream, body: Body) -> Stored:
        seq, last, following = body.get("seq") or 0, body.get("last_by_subj"), body.get("next_by_subj")
        if last:
            found = stream.last_fitting(last)
        elif following:
            found = stream.next_fitting(following, seq)
        elif seq:
            found = stream.messages.get(seq)
        else:
            raise bad_request()
        if found is None:
            raise no_message()
        return found

    def _msg_get(self, name: str, body: Body) -> Body:
        found = self._find(self._stream(name), body)
        message: Body = {"subject": found.subject, "seq": found.seq, "time": write_time(found.time)}
        if found.headers:
            message["hdrs"] = base64.b64encode(found.headers).decode()
        if found.data:
            message["data"] = base64.b64encode(found.data).decode()
        return {"message": message}

    def _direct_get(self, rest: str, data: bytes) -> tuple[bytes, bytes] | None:
        name, _, subject = rest.partition(".")
        stream = self._js.streams.get(name)
        if stream is None or not stream.config["allow_direct"]:
            return None
        try:
            found = self._find(stream, {"last_by_subj": subject} if subject else self._body(data))
        except Refused as error:
            status = "404 Message Not Found" if error.refusal.code == 404 else "408 Bad Request"  # noqa: PLR2004  (not found)
            return b"", write_fields({}, status)
        place = {
            "Nats-Stream": name,
            "Nats-Subject": found.subject,
            "Nats-Sequence": str(found.seq),
            "Nats-Time-Stamp": write_time(found.time),
        }
        return found.data, add_fields(found.headers, place)

    def _msg_delete(self, name: str, body: Body) -> Body:
        stream, seq = self._stream(name), int(body.get("seq", 0))
        if stream.config["deny_delete"]:
            raise refuse(500, 10057, "message delete not permitted")
        if stream.remove(seq) is None:
            if seq > stream.last_seq:
                raise refuse(500, 10057, "stream store EOF")
            if seq < stream.first_seq:
                raise refuse(500, 10057, "no message found")
            raise refuse(400, 10043, f"sequence {seq} not found")
        return {"success": True}

    # -- consumers ---------------------------------------------------------------------------------------------------

    def _consumer_create(self, rest: str, body: Body) -> Body:
        stream = self._stream(rest.partition(".")[0])
        name = rest.split(".")[1] if "." in rest else ""
        asked = dict(body.get("config") or {})
        asked.setdefault("name", name or asked.get("durable_name") or self._js.server.new_consumer_name())
        config = consumers.settle(asked)
        consumers.check(stream, config)
        existing = stream.consumers.get(config["name"])
        action = body.get("action", "")
        if existing is None:
            if action == "update":
                raise refuse(400, 10149, "consumer does not exist")
            existing = Consumer(stream, config)
            self._js.add_consumer(existing)
        elif existing.config != config:
            if action == "create":
                raise refuse(400, 10148, "consumer already exists")
            existing.update(config)
        return existing.info()

    def _consumer(self, rest: str) -> Consumer:
        stream, _, name = rest.partition(".")
        found = self._stream(stream).consumers.get(name)
        if found is None:
            raise no_consumer()
        return found

    def _consumer_info(self, rest: str, _body: Body) -> Body:
        return self._consumer(rest).info()

    def _consumer_delete(self, rest: str, _body: Body) -> Body:
        self._js.delete_consumer(self._consumer(rest))
        return {"success": True}

    def _consumer_list(self, name: str, body: Body) -> Body:
        offset, found = int(body.get("offset", 0)), self._stream(name).consumers
        page = [found[each].info() for each in sorted(found)[offset : offset + _LIST]]
        return {"total": len(found), "offset": offset, "limit": _LIST, "consumers": page}

    def _consumer_names(self, name: str, body: Body) -> Body:
        offset, found = int(body.get("offset", 0)), self._stream(name).consumers
        page = sorted(found)[offset : offset + _NAMES]
        return {"total": len(found), "offset": offset, "limit": _NAMES, "consumers": page}
