"""The HTTP endpoint and whoever asks it: one that goes away before its answer is no reason for a traceback."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry

from tenure.health import HealthServer
from tests.support import wait_until


@contextlib.contextmanager
def serving(why_not_ready: Callable[[], str]) -> Iterator[socket.socket]:
    """A connection that has asked whether a process is ready."""
    server = HealthServer(CollectorRegistry(), why_not_ready, host="127.0.0.1", port=0)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /ready HTTP/1.1\r\n\r\n")
            yield client
    finally:
        server.close()


async def test_who_goes_away_before_the_answer_leaves_no_traceback(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """As a scraper that gives up on a process that is suspended, which then goes on."""
    caplog.set_level(logging.DEBUG, "tenure")
    asked, gone = threading.Event(), threading.Event()

    def why_not_ready() -> str:
        asked.set()
        gone.wait(5)
        return ""

    with serving(why_not_ready) as client:
        await wait_until(asked.is_set, description="it is asked")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close says so at once
        client.close()
        gone.set()
        await wait_until(lambda: "scrape.dropped" in caplog.text, description="it is noticed")
    assert [one.levelname for one in caplog.records if "scrape" in one.message] == ["DEBUG"]
    assert capfd.readouterr().err == ""


async def test_an_answer_that_fails_is_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def why_not_ready() -> str:
        raise RuntimeError("on purpose")

    with serving(why_not_ready) as client:
        assert client.recv(10) == b""
        await wait_until(lambda: "scrape.failed" in caplog.text, description="it is logged")
    assert "on purpose" in caplog.text
    assert capfd.readouterr().err == ""
