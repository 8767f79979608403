"""What people are told of a server's address: never what stands before its ``@``."""

from __future__ import annotations

import pytest

from tenure.core.errors import ConfigError
from tenure.nats.urls import check_url, scrubbed, without_secrets

WORD = "pass9c1e"
URLS = {
    f"nats://ada:{WORD}@a:4222": "nats://a:4222",
    f"ada:{WORD}@a": "a",
    f"{WORD}@a:4222": "a:4222",
    f"tls://ada:{WORD}@a, tls://bob:{WORD}@b": "tls://a, tls://b",
    f"nats://ada:{WORD}@{WORD}@a": "nats://a",
    f"nats://ada:{WORD}/,{WORD}@a:4222,nats://b": "nats://a:4222,nats://b",
    "nats://a:4222,nats://b": "nats://a:4222,nats://b",
}


@pytest.mark.parametrize("url", URLS)
def test_an_address_is_told_without_its_secrets(url: str) -> None:
    assert without_secrets(url) == URLS[url]


@pytest.mark.parametrize("url", URLS)
def test_words_that_quote_it_are_told_without_them_too(url: str) -> None:
    told = scrubbed(f"cannot use {url!r}, said ada with {WORD}", url)
    assert (WORD in told) == (WORD not in url)


@pytest.mark.parametrize(
    "wrong", ["http://ada:{}@a", "nats://ada:{}@a:no", "nats://ada:{}/@a", "nats://ada:{}@[a", "nats://ada:{}@a:0"]
)
def test_an_address_that_is_refused_is_told_without_them(wrong: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_url(wrong.format(WORD))
    told = [
        refused.value,
        refused.value.__cause__,
        refused.value.__context__ if not refused.value.__suppress_context__ else "",
    ]
    assert WORD not in "".join(map(str, told))
