"""The example of limits: real requests to two sites, which count how many they get at once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from actors import capped
from tenure import App, Client, Limit, Run, RunFailed
from tests.conftest import Workers
from tests.support import FAST, no_limit_in_use


class Site(ThreadingHTTPServer):
    """A web server of one site."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.lock = threading.Lock()
        self.now = self.most = self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Page(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        site = self.server
        with site.lock:
            site.now += 1
            site.asked += 1
            site.most = max(site.most, site.now)
        time.sleep(0.05)  # work: makes the page
        with site.lock:
            site.now -= 1
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: Any) -> None:
        """Nothing on the console."""


@contextlib.contextmanager
def serving() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()


@pytest.fixture
def app(namespace: str) -> App:
    """The example under a namespace of this test."""
    app = App(namespace, config=FAST)
    app.actors = {"fetch": app.actor(limits=CAPS)(capped.fetch.function)}
    return app


CAPS = [Limit(bound.n, per=bound.per or None) for bound in capped.fetch.task.policy.limits]


async def test_a_site_is_asked_for_two_pages_at_once_and_all_sites_together_for_ten(
    app: App, client: Client, workers: Workers
) -> None:
    fetch = app.actors["fetch"]
    with serving() as one, serving() as other:
        async with workers.run(app), workers.run(app):
            calls = [
                (fetch.call(site.url, f"/{i}"), f"{site.server_port}-{i}") for i in range(10) for site in (one, other)
            ]
            runs = await client.submit_many(calls)
            pages = await asyncio.gather(*(run.result(20) for run in runs if isinstance(run, Run)))
            missing = await client.submit(fetch.call(one.url, "/missing"))
            with pytest.raises(RunFailed, match="404"):
                await missing.result(10)
            await no_limit_in_use(client)
    assert pages == [capped.Fetched(200, "text/plain", 5)] * 20
    assert (one.most, other.most, one.asked, other.asked) == (2, 2, 11, 10)
