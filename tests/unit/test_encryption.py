"""Keys: what they are, how they are given, and that a box opens only where it belongs."""

from __future__ import annotations

import base64
import json
import os
import sys

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from tenure import App, ConfigError, EncryptedRecord, Encryption
from tenure.core.records import NO_ARGS, NULL, Blob, Failure, Hook, Hooks, Phase, Record, decode, encode
from tenure.core.sealing import Codec
from tests.unit.core.histories import claim, fail, holder, play, submit

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
SEALER = Encryption({"one": KEY}, "one")
CODEC = Codec("docs", SEALER)


def said(key: bytes) -> str:
    return base64.b64encode(key).decode()


def record() -> Record:
    """With something of everything that is hidden."""
    made = play(submit(max_attempts=1), claim(), fail(holder())).found
    hook = Hook(task=replace(made.task, args=Raw(b'{"a":"hook"}')))
    policy = replace(made.task.policy, hooks=Hooks(success=(hook,)))
    blob = Blob(name="r1.args", size=3, digest="")
    return replace(made, task=replace(made.task, args=Raw(b'{"a":"args"}'), blob=blob, policy=policy))


def test_a_record_comes_back_as_it_was_and_its_head_says_nothing_of_what_users_gave() -> None:
    whole = record()
    data = CODEC.encode(whole)
    assert CODEC.decode(data, whole.key) == whole
    head = decode(data.partition(b"\n")[0])
    assert (head.task.args, head.task.policy.hooks, head.failure) == (NO_ARGS, None, None)
    assert head.last is not None
    assert head.last.failure is None
    assert {entry.dead[-1].failure for entry in head.outbox} == {Failure(type="", message="")}
    assert (head.run_id, head.phase, [entry.id for entry in head.outbox]) == (
        whole.run_id,
        whole.phase,
        [entry.id for entry in whole.outbox],
    )


def test_what_is_written_twice_is_not_the_same_twice() -> None:
    assert CODEC.encode(record()) != CODEC.encode(record())


@pytest.mark.parametrize(
    "change",
    [
        {"key": "another"},
        {"generation": 7},
        {"run_id": "another"},
        {"task": replace(record().task, actor="another")},
    ],
    ids=["key", "generation", "run id", "actor"],
)
def test_a_box_opens_for_its_key_generation_run_and_actor_only(change: dict[str, object]) -> None:
    whole = record()
    box = CODEC.encode(whole).partition(b"\n")[2]
    moved = replace(whole, **change)
    head = CODEC.encode(moved).partition(b"\n")[0]
    with pytest.raises(EncryptedRecord, match="does not open") as told:
        CODEC.decode(head + b"\n" + box, moved.key)
    assert (told.value.key, told.value.key_id) == (moved.key, "one")


def test_which_blobs_are_meant_the_box_tells() -> None:
    """Whoever writes another blob's name into the head gets the arguments of neither."""
    whole = record()
    head, _, box = CODEC.encode(whole).partition(b"\n")
    assert CODEC.decode(head.replace(b"r1.args", b"r2.args") + b"\n" + box, whole.key) == whole


def test_a_box_opens_in_its_namespace_only() -> None:
    whole = record()
    with pytest.raises(EncryptedRecord, match="does not open"):
        Codec("another", SEALER).decode(CODEC.encode(whole), whole.key)


def test_another_key_of_the_same_id_opens_nothing() -> None:
    whole = record()
    with pytest.raises(EncryptedRecord, match="'one' is another key here"):
        Codec("docs", Encryption({"one": OTHER}, "one")).decode(CODEC.encode(whole), whole.key)


@pytest.mark.parametrize("codec", [Codec("docs"), CODEC], ids=["without", "with keys"])
@pytest.mark.parametrize("tail", [b"\n\n", b"\n{}", b"\n!\nbox", b"\n" + b"i" * 65 + b"\nbox"])
def test_what_only_looks_encrypted_is_no_record(codec: Codec, tail: bytes) -> None:
    whole = record()
    data = Codec("docs").encode(whole) + tail
    if not tail.strip():  # white space ends no JSON badly
        assert codec.decode(data, whole.key) == whole
        return
    with pytest.raises(msgspec.DecodeError):
        codec.decode(data, whole.key)


@pytest.mark.parametrize("codec", [Codec("docs"), CODEC], ids=["without", "with keys"])
def test_a_record_that_somebody_has_written_over_several_lines_is_read(codec: Codec) -> None:
    """JSON all the same: no line feed of it stands where a head ends and a key's id follows."""
    whole = record()
    data = Codec("docs").encode(whole)
    lines = (
        msgspec.json.format(data, indent=2),
        data.replace(b'"generation":1', b'"generation":\n1\n'),  # a number by itself looks like a key's id
        data.replace(b"},", b"}\n,\n"),
        b"\n" + data,
    )
    for many in lines:
        assert many.count(b"\n") >= 1
        assert json.loads(encode(codec.decode(many, whole.key))) == json.loads(data)


def test_who_could_not_open_the_box_left_an_older_outcome_in_it() -> None:
    """A cancel without the key changes the head alone: what the key's last run gave is not the cancelled one's."""
    before = record()
    assert before.last is not None
    last = replace(before.last, phase=Phase.SUCCEEDED, failure=None, result=Raw(b'"old"'))
    box = CODEC.encode(replace(before, phase=Phase.WAITING, last=last)).partition(b"\n")[2]
    head = replace(before, phase=Phase.CANCELLED, last=replace(last, phase=Phase.CANCELLED, result=NULL))
    read = CODEC.decode(CODEC.encode_to_store(head, proven=True, box=box), before.key)
    assert read.last is not None
    assert (read.last.phase, read.last.result, read.last.failure) == (Phase.CANCELLED, NULL, None)


@pytest.mark.parametrize("box", [b"", b"short", b"x" * 28])
def test_a_box_that_is_none_does_not_open(box: bytes) -> None:
    whole = record()
    head = CODEC.encode(whole).partition(b"\n")[0]
    with pytest.raises(EncryptedRecord, match="does not open"):
        CODEC.decode(head + b"\none\n" + box, whole.key)


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """For whoever says nothing else: `tenure worker`, and commands that know a namespace alone."""
    assert App("docs").encryption is None
    monkeypatch.setenv("TENURE_ENCRYPTION_KEYS", f"2026-11={said(OTHER)}, 2026-08={said(KEY)}")
    encryption = App("docs").encryption
    assert encryption is not None
    assert encryption.current == "2026-11"
    assert encryption.has("2026-08")
    assert encryption.open("2026-11", encryption.seal(b"data", b"about"), b"about") == b"data"
    assert repr(encryption) == "<Encryption with '2026-11'; knows 2026-11, 2026-08>"
    assert App("docs", encryption=SEALER).encryption is SEALER


def test_a_first_item_of_a_dash_says_that_nothing_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_ENCRYPTION_KEYS", f"-,one={said(KEY)}")
    encryption = Encryption.from_env()
    assert (encryption.current, encryption.has("one")) == ("", True)
    codec = Codec("docs", encryption)
    whole = record()
    assert codec.encode(whole) == Codec("docs").encode(whole)
    assert codec.decode(CODEC.encode(whole), whole.key) == whole


URL_SAFE = base64.urlsafe_b64encode(b"\xff" * 32).decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not set"),
        (said(KEY), "number 1 is not readable"),
        ("one=short", "number 1 is not readable"),
        (f"one={said(KEY)},two={said(KEY)[:-4]}", "number 2 is not readable"),
        (f"one={said(KEY)},one={said(OTHER)}", "'one' is there twice"),
        (f"o ne={said(KEY)}", "a key's id has"),
    ],
)
def test_what_the_environment_says_wrongly_is_told_without_telling_a_key(
    text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_ENCRYPTION_KEYS", text)
    with pytest.raises(ConfigError, match=why) as told:
        Encryption.from_env()
    assert said(KEY)[:10] not in str(told.value)


def test_base64_for_urls_is_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_ENCRYPTION_KEYS", f"one={URL_SAFE}")
    assert Encryption.from_env().open("one", Encryption({"k": b"\xff" * 32}, "k").seal(b"d", b""), b"") == b"d"


@pytest.mark.parametrize(
    ("keys", "current", "why"),
    [
        ({"one": KEY[:16]}, "one", "'one' must be 32 random bytes"),
        ({"one": "x" * 32}, "one", "'one' must be 32 random bytes"),
        ({"": KEY}, "", "a key's id has"),
        ({"one": KEY}, "two", "'two' is not among the keys: one"),
        ({}, "two", "is not among the keys: none"),
    ],
)
def test_keys_that_are_none_are_refused(keys: dict[str, bytes], current: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Encryption(keys, current)


def test_an_app_takes_no_other_thing_for_it() -> None:
    with pytest.raises(ConfigError, match=r"must be a tenure\.Encryption or None, got dict"):
        App("docs", encryption={"one": KEY})  # type: ignore[arg-type]  # the point


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigError, match=r"pip install 'tenure\[encryption\]'"):
        Encryption({"one": os.urandom(32)}, "one")
