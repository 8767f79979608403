"""Headers are read as nats-py reads them, only sooner; what is unusual is left to it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tenure.nats import wire
from tenure.nats.wire import BROKEN_HEADERS, QuickClient, WaryClient

NAMES = st.sampled_from(
    [
        *sorted(wire._USUAL),
        "nats-stream",
        "Tenure-Key",
        "tenure-key",
        "Tenure-At",
        "a",
        "a b",
        "a:b",
        "ü",
        "",
        "x\t",
        "-",
    ]
)
VALUES = st.one_of(
    st.sampled_from(["", "1", "a b", " a", "a ", "\ta", "a:b", "a: b", "\x1f", "ü", "\ud800", "\x00"]), st.text()
)
COLONS = st.sampled_from([": ", ": ", ": ", ":", ":\t", ":  ", ""])
ENDS = st.sampled_from(["\r\n", "\r\n", "\r\n", "\n", "\r", ""])
FIRSTS = st.sampled_from(
    ["NATS/1.0", "NATS/1.0", "NATS/1.0", "NATS/1.0 503", "NATS/1.0 100 Idle Heartbeat", "NATS/1.1", ""]
)


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


lines = st.builds(lambda name, colon, value, end: as_bytes(name + colon + value + end), NAMES, COLONS, VALUES, ENDS)
blocks = st.builds(
    lambda first, end, many, last: as_bytes(first) + as_bytes(end) + b"".join(many) + as_bytes(last),
    FIRSTS, ENDS, st.lists(lines, max_size=6), ENDS,
)  # fmt: skip
usual = st.builds(
    lambda many: b"NATS/1.0\r\n" + b"".join(b"%s: %s\r\n" % (as_bytes(n), as_bytes(v)) for n, v in many) + b"\r\n",
    st.lists(st.tuples(NAMES, VALUES), max_size=6),
)


@given(st.one_of(blocks, usual, st.binary(max_size=40)))
@example(b"NATS/1.0\r\nTenure-Key: a\r\ntenure-key: b\r\n\r\n")
@example(b"NATS/1.0\r\nNats-Stream: a\r\nNats-Stream: b\r\n\r\n")
@example(b"NATS/1.0\r\n\r\n")
@example(b"NATS/1.0\r\nTenure-State: a\r\nTenure-State: b\r\n\r\n")
@example(b"NATS/1.0\r\nNats-Stream: a\r\nNats-Subject: b\r\nNats-TTL: 1s")
@example(b"NATS/1.0\r\nNats-Stream:  a\r\n\r\n")
@example(b"NATS/1.0\r\nNats-Stream: a\x1f\r\n\r\n")
@example(b"NATS/1.0\r\nNats-Stream:a\r\nNats-Subject: b\r\n\r\n")
@example(b"NATS/1.0\r\na b: c\r\n\r\n")
@example(b"NATS/1.0\r\na:b: c\r\n\r\n")
@example(b"NATS/1.0\r\nNats-Stream: \xc3\xbc\r\n\r\n")
@example(b"NATS/1.0 503\r\nNats-Stream: a\r\n\r\n")
async def test_they_are_read_as_nats_py_reads_them(block: bytes) -> None:
    assert await heard(QuickClient(), block) == await heard(WaryClient(), block)


async def heard(client: WaryClient, block: bytes) -> object:
    """What is read, or the error's type."""
    try:
        return await client._process_headers(block)
    except Exception as error:  # noqa: BLE001  (compared)
        return type(error)


def test_what_tenure_and_the_server_write_is_read_the_short_way() -> None:
    block = b"NATS/1.0\r\nNats-Stream: KV_TENURE_x\r\nNats-Sequence: 12\r\nTenure-State: waiting 0 - - - noop\r\n\r\n"
    assert wire._plain_fields(block) == {
        "Nats-Stream": "KV_TENURE_x",
        "Nats-Sequence": "12",
        "Tenure-State": "waiting 0 - - - noop",
    }


async def test_a_header_that_is_given_twice_in_other_capitals_is_told() -> None:
    fields = await QuickClient()._process_headers(b"NATS/1.0\r\nTenure-Key: a\r\ntenure-key: b\r\n\r\n")
    assert fields is not None
    assert "given twice" in fields[BROKEN_HEADERS]
