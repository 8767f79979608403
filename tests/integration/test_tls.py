"""Who asks for TLS gets it or is refused: never a connection that only looks encrypted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tenure import App, ConfigError
from tenure.nats.binary import find_binary
from tests.support import wait_until

PEM = Path(__file__).parents[1] / "localhost.pem"
"""A key and its certificate for 127.0.0.1, made for these tests: they protect nothing."""


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(PEM))


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[int]:
    """The port of a server that talks TLS only."""
    config = tmp_path / "tls.conf"
    quoted = json.dumps(str(PEM))
    config.write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: {json.dumps(str(tmp_path))}\n'
        f"tls {{ cert_file: {quoted}, key_file: {quoted} }}\njetstream {{ store_dir: {json.dumps(str(tmp_path))} }}\n"
    )
    process = subprocess.Popen([find_binary(), "-c", config], stderr=subprocess.DEVNULL)
    ports: list[int] = []

    def ready() -> bool:
        for file in tmp_path.glob("*.ports"):
            with contextlib.suppress(ValueError):  # half written
                ports[:] = [int(json.loads(file.read_text())["nats"][0].rpartition(":")[2])]
        return bool(ports)

    asyncio.run(wait_until(ready, description="the server is there"))
    yield ports[0]
    process.terminate()
    process.wait()


@asynccontextmanager
async def address(targets: list[int]) -> AsyncIterator[tuple[int, Callable[[], None]]]:
    """A port that leads to the last of ``targets``, and what breaks all connections through it."""
    pumps: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    def cut() -> None:
        while writers:
            writers.pop().close()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", targets[-1])
        writers.extend((writer, there[1]))
        for one, other in ((reader, there[1]), (there[0], writer)):
            pumps.add(asyncio.create_task(pump(one, other)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], cut
    finally:
        server.close()
        cut()
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "url": ("tls", {}),
    "url and context": ("tls", {"tls": trusting()}),
    "context": ("nats", {"tls": trusting()}),
    "hostname": ("nats", {"tls_hostname": "localhost"}),
}


@pytest.mark.parametrize("asked", ASKED)
async def test_a_server_without_tls_is_refused_to_who_asks_for_it(asked: str, app: App, nats_server: str) -> None:
    """nats-py takes the wish for a hint and sends what it has, credentials first, in the clear."""
    scheme, options = ASKED[asked]
    url = nats_server.replace("nats://", f"{scheme}://")
    for door in (app.connect(url, **options), app.worker(url, **options), app.supervisor(url, **options)):
        with pytest.raises(ConfigError, match="does not offer TLS"):
            async with door:
                pass


async def test_no_credentials_are_sent_to_a_server_without_tls(app: App) -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"auth_required":true}\r\n')
        heard.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"tls://user:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConfigError, match="does not offer TLS"):
            async with app.connect(url):
                pass
        await wait_until(lambda: heard, description="the connection was closed")
    assert heard == [b""]


@pytest.mark.parametrize("scheme", ["tls", "nats"])
@pytest.mark.one_server("its own server has TLS")
async def test_a_server_with_tls_is_used(scheme: str, app: App, tls_server: int) -> None:
    @app.actor
    async def hello() -> str:
        return "hello"

    url = f"{scheme}://127.0.0.1:{tls_server}"
    async with app.connect(url, tls=trusting()) as client, app.worker(url, tls=trusting()) as worker:
        run = await client.submit(hello.call())
        await worker.run_until_idle()
        assert await run.result(timeout=5) == "hello"


@pytest.mark.one_server("its own server has TLS")
async def test_a_server_that_has_lost_its_tls_is_not_used_when_it_is_back(
    app: App, tls_server: int, nats_server: str
) -> None:
    """A reconnect asks again; the client goes on trying, and goes on where TLS is back."""
    plain = int(nats_server.rpartition(":")[2])
    targets = [tls_server]
    async with address(targets) as (port, cut), app.connect(f"tls://127.0.0.1:{port}", tls=trusting()) as client:
        conn = client.stores.conn
        targets.append(plain)
        cut()
        await wait_until(lambda: "does not offer TLS" in conn.last_error, description="it was refused")
        assert not conn.is_connected
        targets.append(tls_server)
        await wait_until(lambda: conn.is_connected, description="it is back")
        assert await client.status("k") is None
