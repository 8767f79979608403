"""The quick parser says what nats-py's own says, however a stream of bytes is cut."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from tenure.nats import wire
from tenure.nats.wire import QuickClient, QuickParser, make_client

ANSWERS = b"7"


class Heard:
    """Stands in for the client: keeps what the parser tells it."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def is_answer(self, sid: bytes, subject: bytes, data: bytes) -> bool:
        if sid == ANSWERS:
            self.events.append(("msg", int(sid), subject, b"", data, None))
        return sid == ANSWERS

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.events.append(("msg", sid, subject, reply, data, headers))

    async def _process_ping(self) -> None:
        self.events.append(("ping",))

    async def _process_pong(self) -> None:
        self.events.append(("pong",))

    async def _process_err(self, text: str) -> None:
        self.events.append(("err", text))

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.events.append(("info", info))


def heard(kind: type[Parser], chunks: list[bytes]) -> list[tuple[Any, ...]]:
    client = Heard()
    parser = kind(client)

    async def feed() -> None:
        for chunk in chunks:
            await parser.parse(chunk)

    asyncio.run(feed())
    assert not parser.buf
    return client.events


subjects = st.text("abc.$*>_", min_size=1, max_size=6).map(str.encode)
payloads = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"", b"\r\n", b"MSG a 1 2\r\nhi\r\n", b"PING\r\n", b"x" * 5_000, b"y" * 100_000]),
)
replies = st.one_of(st.just(b""), subjects)


def message(subject: bytes, sid: int, reply: bytes, data: bytes, headers: bytes) -> bytes:
    reply = reply + b" " if reply and b"%d" % sid != ANSWERS else b""
    if not headers:
        return b"MSG %s %d %s%d\r\n%s\r\n" % (subject, sid, reply, len(data), data)
    sizes = b"%d %d" % (len(headers), len(headers) + len(data))
    return b"HMSG %s %d %s%s\r\n%s%s\r\n" % (subject, sid, reply, sizes, headers, data)


headers = st.sampled_from([b"", b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0 503\r\n\r\n", b"NATS/1.0\r\na: b\r\n\r\n"])
messages = st.builds(message, subjects, st.integers(1, 12), replies, payloads, headers)
others = st.sampled_from(
    [
        b"PING\r\n",
        b"PONG\r\n",
        b"+OK\r\n",
        b"-ERR 'slow'\r\n",
        b'INFO {"a":1}\r\n',
        b"MSG a  3   2\r\nhi\r\n",
        b"PING \r\n",
    ]
)


@given(st.lists(st.one_of(messages, messages, others), max_size=12), st.lists(st.integers(1, 120_000), max_size=8))
def test_however_a_stream_is_cut_both_parsers_tell_the_same(lines: list[bytes], cuts: list[int]) -> None:
    """Messages in one piece, in two reads, longer than what is kept of one, amid pings.

    And lines that only nats-py reads.
    """
    stream = b"".join(lines)
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    chunks = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert heard(QuickParser, chunks) == heard(Parser, chunks)


@given(st.lists(messages, min_size=1, max_size=6), st.integers(1, 7))
def test_a_stream_that_comes_in_drops_is_read_as_well(lines: list[bytes], size: int) -> None:
    stream = b"".join(line for line in lines if len(line) < 1_000)
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert heard(QuickParser, chunks) == heard(Parser, chunks)


@pytest.mark.parametrize("line", [b"MSG a 1 x\r\n", b"HMSG a 1 2\r\n\r\n", b"NONSENSE a 1 2\r\n", b"\r\n"])
def test_what_is_no_protocol_is_refused_as_nats_py_refuses_it(line: bytes) -> None:
    for kind in (QuickParser, Parser):
        with pytest.raises(ProtocolError):
            heard(kind, [b"MSG a 1 2\r\nhi\r\n" + line])


async def test_an_unknown_version_of_nats_py_gets_its_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_client(), QuickClient)
    monkeypatch.setattr(wire, "TESTED", ("1.",))
    assert not isinstance(cast("object", make_client()), QuickClient)
