"""Whoever may publish to the inbox and nothing else: what it can do, in other languages, and with what no client would send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import pytest

from tenure import App, Client
from tenure.core.marks import is_mark
from tenure.nats.binary import find_binary
from tests.conftest import Supervisors, Workers
from tests.strangers import STATUS, Stranger, Wire, phase, rejected
from tests.support import wait_until


@pytest.fixture
def app(open_app: App) -> App:
    return open_app


# -- on the wire ---------------------------------------------------------------------------------------------------

BROKEN = [
    b"NATS/1.0\r\nTenure-Key k\r\n\r\n",  # no colon: the key would be lost, and another one made up
    b"NATS/1.0\r\nTenure-Key: a\r\ntenure-key: b\r\n\r\n",
    b"NATS/1.0\r\nTenure-Key: \xff\xfe\r\n\r\n",
]


async def test_headers_that_no_client_would_send_break_nothing_and_are_told(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors, nats_server: str
) -> None:
    async with supervisors.run(app) as supervisor, Wire(nats_server) as wire:
        for block in BROKEN:
            assert (await wire.send(f"{stranger.root}.submit.add", block, b'{"one": 1}'))["seq"]
        assert (await wire.send(f"{stranger.root}.submit.add", STATUS, b'{"one": 1}'))["seq"]
        await phase(client, "status")
        told = await rejected(client, len(BROKEN))
        assert {one.reason for one in told} == {"malformed"}
        assert supervisor.stores.conn.raw.stats["reconnects"] == 0, "its connection was broken"
        await stranger.send("submit.add", {"one": 1}, tenure_key="whatever the case")
        await phase(client, "whatever the case")


async def test_keys_of_any_script_and_letters_that_subjects_do_not_take_are_kept_as_they_are(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors, nats_server: str
) -> None:
    key = "Größe/文書.*.>"
    async with supervisors.run(app), Wire(nats_server) as wire:
        await wire.send(f"{stranger.root}.submit.add", f"NATS/1.0\r\nTenure-Key: {key}\r\n\r\n".encode(), b'{"one": 1}')
        await phase(client, key)


# -- permissions ---------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path, namespace: str) -> Iterator[str]:
    """``127.0.0.1:<port>`` of a server where ``guest`` may use the inbox alone, and ``tenure`` everything."""
    config = tmp_path / "guarded.conf"
    allowed = json.dumps([f"tenure.{namespace}.submit.add", f"tenure.{namespace}.cancel"])
    config.write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: {json.dumps(str(tmp_path))}\n'
        f"jetstream {{ store_dir: {json.dumps(str(tmp_path))} }}\n"
        f"authorization {{ users: [ {{ user: tenure, password: t }}, {{ user: guest, password: g, permissions: {{"
        f' publish: {allowed}, subscribe: ["_INBOX_guest.>"] }} }} ] }}\n'
    )
    process = subprocess.Popen([find_binary(), "-c", config], stderr=subprocess.DEVNULL)
    ports: list[int] = []

    def ready() -> bool:
        for file in tmp_path.glob("*.ports"):
            with contextlib.suppress(ValueError):  # half written
                ports[:] = [int(json.loads(file.read_text())["nats"][0].rpartition(":")[2])]
        return bool(ports)

    asyncio.run(wait_until(ready, description="the server is there"))
    yield f"127.0.0.1:{ports[0]}"
    process.terminate()
    process.wait()


@pytest.fixture
async def guest(guarded: str, namespace: str) -> AsyncIterator[tuple[Stranger, list[str]]]:
    """Who may only publish to the inbox, and what the server says to it."""
    told: list[str] = []

    async def note(error: Exception) -> None:
        told.append(str(error))

    connected = await nats.connect(
        f"nats://guest:g@{guarded}", inbox_prefix=b"_INBOX_guest", error_cb=note, max_reconnect_attempts=0
    )
    yield Stranger(connected, namespace), told
    await connected.close()


@pytest.mark.one_server("its own server knows users")
async def test_a_publisher_with_the_inbox_alone_is_heard_there_and_nowhere_else(
    app: App, guarded: str, guest: tuple[Stranger, list[str]], namespace: str
) -> None:
    url = f"nats://tenure:t@{guarded}"
    stranger, told = guest
    async with app.connect(url) as client, Supervisors(url).run(app):
        await stranger.send("submit.add", {"one": 1}, Tenure_Key="k")
        await phase(client, "k")
        await stranger.send("cancel", Tenure_Key="k")
        await phase(client, "k", "cancelled")
        names = app.names
        forbidden = [
            f"{stranger.root}.submit.hold",
            f"{stranger.root}.replace.add",
            f"{stranger.root}.api.submit.add",
            names.record("k"),
            names.work("default", "normal", "k", "r"),
            names.rejected("x"),
            f"$JS.API.STREAM.PURGE.{names.inbox_stream}",
            f"$JS.API.CONSUMER.MSG.NEXT.{names.inbox_stream}.supervisors",
            f"$JS.ACK.{names.inbox_stream}.supervisors.1.1.1.1.0",
        ]
        for subject in forbidden:
            await stranger.client.publish(subject, b"{}")
        await stranger.client.flush()
        await wait_until(lambda: len(told) == len(forbidden), description="each is refused")
        assert all("permissions violation" in text.lower() for text in told), told
        found = await client.stores.runs.read("k")
        assert found.record is not None
        assert found.record.generation == 1
        assert await client.dead.rejected() == []


# -- another language ----------------------------------------------------------------------------------------------

NODE = shutil.which("node")
PACKAGE = "nats@2.29.3"
SCRIPT = """
const { connect, headers, StringCodec } = require("nats");
(async () => {
  const [url, root] = process.argv.slice(2);
  const nc = await connect({ servers: url });
  const js = nc.jetstream(), text = StringCodec();
  const send = (what, args, fields) => {
    const h = headers();
    for (const [name, value] of Object.entries(fields)) h.set(name, value);
    return js.publish(`${root}.${what}`, text.encode(args === undefined ? "" : JSON.stringify(args)), { headers: h });
  };
  const acks = [];
  acks.push(await send("submit.add", { one: 40 }, { "Tenure-Key": "grün", "Nats-Msg-Id": "n1" }));
  acks.push(await send("submit.add", { one: 40 }, { "Tenure-Key": "grün", "Nats-Msg-Id": "n1" }));
  acks.push(await send("submit.hold", undefined, { "Tenure-Key": "held", "Tenure-Delay": "1h" }));
  acks.push(await send("cancel", { reason: "from node" }, { "Tenure-Key": "held" }));
  acks.push(await send("submit.add", { two: 1 }, {}));
  console.log(JSON.stringify(acks));
  await nc.drain();
})();
"""


@pytest.fixture(scope="session")
def node_modules(request: pytest.FixtureRequest) -> Path:
    """A folder with the package, kept from one session to the next."""
    if NODE is None or shutil.which("npm") is None:
        pytest.skip("node or npm is missing: the client that is not Python cannot run")
    folder = Path(request.config.cache.mkdir("node-client"))
    if not (folder / "node_modules" / "nats" / "package.json").exists():
        (folder / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", PACKAGE]
        done = subprocess.run(command, cwd=folder, check=False, timeout=120, capture_output=True, text=True)
        if re.search(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH", done.stderr):
            pytest.skip(f"this machine reaches no registry: {PACKAGE}, the client that is not Python, cannot be had")
        assert done.returncode == 0, done.stderr
    return folder


async def test_a_client_in_javascript_submits_cancels_and_repeats_itself(
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    workers: Workers,
    nats_server: str,
    node_modules: Path,
) -> None:
    """The commands of one program have no order between them, so the cancel is tried only once its run is there."""
    script = node_modules / "client.cjs"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [str(NODE), str(script), nats_server, stranger.root]
    done = await asyncio.to_thread(subprocess.run, command, check=True, timeout=60, capture_output=True, text=True)
    acks = json.loads(done.stdout)
    assert [bool(ack.get("duplicate")) for ack in acks] == [False, True, False, False, False]
    async with supervisors.run(app), workers.run(app):
        await phase(client, "grün")
        assert await (await client.run("grün")).result(5) == 42
        await phase(client, "held")
        (told,) = await rejected(client)
        assert (told.reason, told.data) == ("arguments", b'{"two":1}')
        await asyncio.to_thread(subprocess.run, command, check=True, timeout=60, capture_output=True)
        status = await client.status("held")
        assert status is not None

        async def cancelled() -> bool:
            found = await client.stores.runs.read("held")
            record = found.record
            return record is not None and record.last is not None and not any(map(is_mark, record.seen))

        await wait_until(cancelled, description="a cancel has hit it")
