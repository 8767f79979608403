"""Keys, names and subjects: one token per key, no collisions, nothing of the system within a key's reach."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.core.errors import ConfigError, InvalidCall
from tenure.core.subjects import (
    MAX_KEY_BYTES,
    PRIORITIES,
    Names,
    WorkSubject,
    check_name,
    check_priority,
    decode_key,
    encode_key,
)

NAMES = Names("ns")
RUN = "01HZX0000000000000000000A1"
TOKEN = re.compile(r"[A-Za-z0-9_=-]+\Z")

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=MAX_KEY_BYTES).filter(
    lambda key: len(key.encode()) <= MAX_KEY_BYTES
)


@given(keys)
@example("a b")
@example("a.b")
@example("*")
@example(">")
@example("$KV.x")
@example("\x00\n\t")
@example("=")
@example("=41")
@example("a\u0301")
@example("\u00e1")
@example("\U0010ffff" * (MAX_KEY_BYTES // 4))
def test_any_key_becomes_one_token_of_the_kv_alphabet_and_comes_back(key: str) -> None:
    token = encode_key(key)
    assert TOKEN.match(token)
    assert decode_key(token) == key


@given(keys, keys)
def test_no_two_keys_share_a_token(one: str, other: str) -> None:
    assert (encode_key(one) == encode_key(other)) == (one == other)


@pytest.mark.parametrize(
    ("key", "token"),
    [
        ("stream", "stream"),
        ("order-17_b", "order-17_b"),
        ("a b", "a=20b"),
        ("a.b", "a=2Eb"),
        ("doc-1/refined", "doc-1=2Frefined"),
        ("*", "=2A"),
        (">", "=3E"),
        ("A", "A"),
        ("a", "a"),
        ("=41", "=3D41"),
        ("\u00e9", "=C3=A9"),
        ("\U0001f680", "=F0=9F=9A=80"),
    ],
)
def test_the_encoding_is_what_other_languages_have_to_write(key: str, token: str) -> None:
    assert encode_key(key) == token


def test_keys_that_look_alike_have_different_tokens() -> None:
    alike = ["A", "a", "=41", "a b", "a.b", "a=20b", "a\u0301", "\u00e1", " a", "a ", "\u0430"]
    assert len({encode_key(key) for key in alike}) == len(alike)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "empty"),
        ("x" * 4096, "4096 bytes"),
        ("x" * (MAX_KEY_BYTES + 1), "digest"),
        ("\u00e9" * (MAX_KEY_BYTES // 2 + 1), "digest"),
        ("bad \ud800 key", "not valid Unicode"),
        (None, "NoneType"),
        (b"bytes", "bytes"),
        (7, "int"),
        (["a"], "list"),
    ],
)
def test_what_cannot_be_a_key_is_refused_by_name(key: object, says: str) -> None:
    with pytest.raises(InvalidCall, match=says) as caught:
        encode_key(key)
    assert caught.value.field == "key"


def test_the_longest_key_is_accepted() -> None:
    assert encode_key("x" * MAX_KEY_BYTES) == "x" * MAX_KEY_BYTES
    assert len(encode_key("\u00e9" * (MAX_KEY_BYTES // 2))) == 3 * MAX_KEY_BYTES


@pytest.mark.parametrize(
    "token",
    [
        "",
        "=",
        "=4",
        "=41",  # A needs no escape
        "=2e",  # lower case
        "=C3",  # half a character
        "=ED=A0=80",  # a surrogate
        "a.b",
        "a b",
        "*",
        ">",
        "a\n",
        "\u00e9",
        "x" * (MAX_KEY_BYTES + 1),
        "=2E" * (MAX_KEY_BYTES + 1),
    ],
)
def test_a_token_that_no_key_has_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match=r"not an encoded key|codec|bytes of UTF-8"):
        decode_key(token)


@given(st.text(alphabet="aA=0123456789CDEF.-_*> \u00e9", max_size=12))
def test_whatever_decodes_encodes_to_the_same_token(token: str) -> None:
    try:
        key = decode_key(token)
    except ValueError:
        return
    assert encode_key(key) == token


# -- work subjects ---------------------------------------------------------------------------------------------------


@given(keys, st.sampled_from(["default", "gpu-1", "A_b"]), st.sampled_from(PRIORITIES))
def test_a_work_subject_is_taken_apart_into_what_it_was_made_of(key: str, queue: str, priority: str) -> None:
    subject = NAMES.work(queue, priority, key, RUN)
    assert NAMES.parse_work(subject) == WorkSubject(queue, priority, key, RUN)
    assert subject.startswith(NAMES.work_filter(queue, priority)[:-1])


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "tenure.ns.work.",
        "tenure.ns.work.default.normal.k",
        f"tenure.ns.work.default.normal.k.{RUN}.more",
        f"tenure.other.work.default.normal.k.{RUN}",
        f"tenure.ns2.work.default.normal.k.{RUN}",
        f"tenure.ns.timer.k.{RUN}.0",
        f"tenure.ns.work.default.normal.=41.{RUN}",
        f"tenure.ns.work.default.normal.=FF.{RUN}",
        f"tenure.ns.work.default.normal..{RUN}",
        f"tenure.ns.work.default.normal.{'x' * (MAX_KEY_BYTES + 1)}.{RUN}",
    ],
)
def test_a_foreign_subject_is_nobodys_wake_up(subject: str) -> None:
    assert NAMES.parse_work(subject) is None


@given(st.text(max_size=40))
def test_no_subject_breaks_the_parser(rest: str) -> None:
    found = NAMES.parse_work(NAMES.work_prefix + rest)
    assert found is None or NAMES.work(*found) == NAMES.work_prefix + rest


def test_wake_ups_of_two_runs_never_share_a_subject() -> None:
    """[11] the record expires; an old timer fires on a subject used again: the new life's timer is purged."""
    subjects = {NAMES.timer(key, run, attempt) for key, run, attempt in product("ab", ("r1", "r2"), (0, 1))}
    assert len(subjects) == 8
    assert len({NAMES.work("q", "low", key, run) for key, run in product("ab", ("r1", "r2"))}) == 4


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["session", "stop", "progress", "$KV", ">", "session.s1", "KV_TENURE_ns"])
def test_no_key_names_a_system_subject(key: str) -> None:
    subject = NAMES.record(key)
    assert subject.startswith(NAMES.runs_prefix)
    assert "." not in subject.removeprefix(NAMES.runs_prefix)
    assert not subject.startswith(NAMES.sessions_prefix)


def test_namespaces_share_no_stream_and_no_subject() -> None:
    def streams(names: Names) -> set[str]:
        return {names.runs_stream, names.sessions_stream, names.work_stream, names.blobs_stream}

    namespaces = ["a", "A", "a-b", "a_b", "a_WORK", "a_BLOBS", "KV_a", "a_SESSIONS_b"]
    assert len(set().union(*(streams(Names(name)) for name in namespaces))) == 4 * len(namespaces)
    assert len({Names(name).work_prefix for name in namespaces}) == len(namespaces)


def test_a_namespace_whose_runs_would_lie_among_the_sessions_of_another_is_refused() -> None:
    """``TENURE_a_SESSIONS`` would be both the runs of ``a_SESSIONS`` and the sessions of ``a``."""
    with pytest.raises(ConfigError, match="sessions of 'a'"):
        Names("a_SESSIONS")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "x" * 65, "\u00e9", "a\n", None, 3])
def test_a_bad_name_is_refused_with_its_kind(name: Any) -> None:
    with pytest.raises(ConfigError, match="queue"):
        check_name("queue", name)
    with pytest.raises(ConfigError, match="namespace"):
        Names(name)


def test_good_names_and_priorities_pass() -> None:
    assert check_name("queue", "gpu-1_A") == "gpu-1_A"
    assert [check_priority(priority) for priority in PRIORITIES] == list(PRIORITIES)
    with pytest.raises(ConfigError, match="urgent"):
        check_priority("urgent")


def test_lanes_have_different_consumers() -> None:
    lanes = list(product(["a", "a-high", "high"], PRIORITIES))
    assert len({NAMES.consumer(*lane) for lane in lanes}) == len(lanes)


@pytest.mark.parametrize("key", ["doc-1", "a b", "café.*"])
def test_every_subject_of_the_work_stream_is_known_as_such(key: str) -> None:
    for prefix, subject in (
        (NAMES.work_prefix, NAMES.work("nobodys", "low", key, RUN)),
        (NAMES.timer_prefix, NAMES.timer(key, RUN, 3)),
        (NAMES.timer_prefix, f"{NAMES.timer(key, RUN, 0)}-1700000000000"),
        (NAMES.park_prefix, NAMES.park("@switch", key, RUN)),
    ):
        assert NAMES.stored_for(prefix, subject) == tuple(subject[len(prefix) :].split("."))


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        *(("work", rest) for rest in ("x", "default.normal.k", "default.normal.k.r.more", "default.urgent.k.r")),
        *(("work", rest) for rest in ("a=b.normal.k.r", "default.normal.=zz.r", "default.normal.*.r", "*", ">")),
        *(("timer", rest) for rest in ("x", "k.r", "k.r.1.2", "k.r.soon", "k.r.1-", "=zz.r.1")),
        *(("park", rest) for rest in ("x", "limit.k", "limit.k.r.more", "limit.=zz.r")),
    ],
)
def test_a_subject_of_the_work_stream_that_no_tenure_stores_anything_at_is_known_as_such(kind: str, rest: str) -> None:
    prefix = f"{NAMES.root}.{kind}."
    assert NAMES.stored_for(prefix, prefix + rest) is None
