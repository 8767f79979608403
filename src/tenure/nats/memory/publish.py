"""What may be stored: the checks of a publish into a stream, in the order in which the real server makes them."""

from __future__ import annotations

import msgspec

from tenure.nats.memory import schedules
from tenure.nats.memory.refusals import Refusal, Refused, refuse, wrong_sequence
from tenure.nats.memory.stored import SECOND, read_duration, read_fields
from tenure.nats.memory.stream import Stream

_EXPECT = "Nats-Expected-Last-Subject-Sequence"
_EXPECT_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"


def publish(stream: Stream, subject: str, headers: bytes, data: bytes) -> bytes:
    """Store a message, or do not; the answer to its publisher."""
    fields = read_fields(headers)
    try:
        seq, duplicate = _store(stream, subject, headers, data, fields)
    except Refused as error:
        return _refused(stream, error.refusal)
    more = ',"duplicate": true' if duplicate else ""
    return f'{{"stream":"{stream.name}","seq":{seq}{more}}}'.encode()


def _refused(stream: Stream, refusal: Refusal) -> bytes:
    return msgspec.json.encode({"error": refusal, "stream": stream.name, "seq": 0})


def _store(stream: Stream, subject: str, headers: bytes, data: bytes, fields: dict[str, str]) -> tuple[int, bool]:
    """Its sequence, and whether it was stored already."""
    if not fields:
        stream.make_room(len(data))
        return stream.append(subject, b"", data, fields).seq, False
    ttl = _ttl(stream, fields)
    rollup = fields.get("Nats-Rollup", "")
    if rollup and not stream.config["allow_rollup_hdrs"]:
        raise refuse(500, 10111, "rollup not permitted")
    if rollup not in {"", "sub", "all"}:
        raise refuse(500, 10111, f'rollup value invalid: "{rollup}"')
    _check_expected(stream, subject, fields)
    if fields.get(schedules.SCHEDULE):
        schedules.check(stream, subject, fields)
    msg_id = fields.get("Nats-Msg-Id")
    if msg_id and (earlier := _seen(stream, msg_id)):
        return earlier, True
    stream.make_room(len(headers) + len(data))
    if rollup:
        stream.purge(subject if rollup == "sub" else ">")
    stored = stream.append(subject, headers, data, fields, ttl)
    if msg_id:
        stream.seen_ids[msg_id] = (stored.seq, stored.time)
    return stored.seq, False


def _ttl(stream: Stream, fields: dict[str, str]) -> int | None:
    """Nanoseconds; 0: never; None: as the stream says."""
    text = fields.get("Nats-TTL")
    if text is None:
        return None
    if not stream.config["allow_msg_ttl"]:
        raise refuse(400, 10166, "per-message TTL is disabled")
    if text.lower() == "never":
        return 0
    ttl = read_duration(text)
    if ttl is None or ttl < SECOND:
        raise refuse(400, 10165, "invalid per-message TTL")
    return ttl


def _check_expected(stream: Stream, subject: str, fields: dict[str, str]) -> None:
    if "Nats-Expected-Stream" in fields and fields["Nats-Expected-Stream"] != stream.name:
        raise refuse(400, 10060, "expected stream does not match")
    if _EXPECT in fields:
        other = fields.get(_EXPECT_SUBJECT)
        last = stream.last_fitting(other) if other else None
        actual = last.seq if last else 0 if other else stream.last_of(subject)
        if fields[_EXPECT] != str(actual):
            raise wrong_sequence(actual)
    if "Nats-Expected-Last-Sequence" in fields and fields["Nats-Expected-Last-Sequence"] != str(stream.last_seq):
        raise wrong_sequence(stream.last_seq)
    if "Nats-Expected-Last-Msg-Id" in fields:
        last_id = next(reversed(stream.seen_ids), "")
        if fields["Nats-Expected-Last-Msg-Id"] != last_id:
            raise refuse(400, 10070, f"wrong last msg ID: {last_id}")


def _seen(stream: Stream, msg_id: str) -> int:
    """The sequence under which this id was stored within the window, 0 if it was not."""
    oldest = stream.server.now() - stream.config["duplicate_window"]
    while stream.seen_ids:
        first = next(iter(stream.seen_ids))
        if stream.seen_ids[first][1] > oldest:
            break
        del stream.seen_ids[first]
    return stream.seen_ids.get(msg_id, (0, 0))[0]
