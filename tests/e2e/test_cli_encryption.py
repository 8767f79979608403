"""Commands where what is stored is encrypted: with ``$TENURE_ENCRYPTION_KEYS`` as ever, without it in clear words."""

from __future__ import annotations

import base64
import json

import pytest

from tests.e2e.commands import Cli

KEYS = f"2026-11={base64.b64encode(bytes(32)).decode()}"


def test_with_the_keys_everything_is_as_ever_and_without_them_it_says_which_is_missing(
    own: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as keys, own.worker(TENURE_ENCRYPTION_KEYS=KEYS):
        keys.setenv("TENURE_ENCRYPTION_KEYS", KEYS)
        own.fast("submit", "tasks:app", "say", "--key", "k", "--arg", "text=a secret", "--wait")
        own.fast("submit", "tasks:app", "fail", "--key", "dead", "--arg", "why=a secret", "--wait", code=1)
        assert "a secret" in own.fast("result", "k")[0]
        assert "encrypted" not in own.fast("show", "k")[0]

    shown, complaint = own.fast("show", "dead")
    assert "failed" in shown
    assert "encrypted" in shown
    assert "key id '2026-11'" in shown
    assert "a secret" not in shown + complaint
    assert json.loads(own.fast("show", "dead", "--json")[0])["encrypted"] == "key id '2026-11'"

    for command in (("result", "k"), ("cancel", "k"), ("watch", "k")):
        said = own.fast(*command, code=2)[1]
        assert "the record of 'k' is encrypted (key id '2026-11'), and this process has no such key" in said
        assert "$TENURE_ENCRYPTION_KEYS" in said
    assert "encrypted (key id '2026-11')" in own.fast("dead", "ls")[0]
    assert "the dead letter of 'dead' is encrypted" in own.fast("dead", "replay", "dead", code=1)[1]


def test_a_key_that_nobody_can_read_any_more_is_ended_and_forgotten(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as keys:
        keys.setenv("TENURE_ENCRYPTION_KEYS", KEYS)
        own.fast("submit", "tasks:app", "say", "--key", "k", "--arg", "text=a secret", "--delay", "1h")
        assert "cancel it without --lost-key" in own.fast("cancel", "k", "--lost-key", code=2)[1]
    assert "leave --run and --reason out" in own.fast("cancel", "k", "--lost-key", "--reason", "so", code=2)[1]
    assert "go with a KEY" in own.fast("cancel", "--pattern", "k*", "--lost-key", code=2)[1]
    said = own.fast_json("cancel", "k", "--lost-key")
    assert (said["outcome"], said["forgotten"]) == ("cancelled", True)
    own.fast("show", "k", code=2)
    assert "there is no key" in own.fast("cancel", "k", "--lost-key", code=2)[1]
    own.fast("submit", "tasks:app", "say", "--key", "k", "--arg", "text=new", "--delay", "1h")
    assert own.fast_json("show", "k")["generation"] == 1


def test_keys_that_cannot_be_read_are_a_mistake_in_the_configuration(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_ENCRYPTION_KEYS", "2026-11=c2hvcnQ=")
    said = own.fast("show", "k", code=2)[1]
    assert "$TENURE_ENCRYPTION_KEYS: key number 1 is not readable" in said
    assert "c2hvcnQ" not in said
