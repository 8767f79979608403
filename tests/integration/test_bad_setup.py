"""Wrong settings, wrong servers, wrong streams: a ConfigError that names what a person must change, or Unavailable."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from tenure import App, Config, ConfigError, Retry, TenureError, Unavailable
from tenure.nats.binary import find_binary
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.urls import check_url
from tests.support import FAST, wait_until

IMPATIENT = replace(FAST, connect_timeout_seconds=0.5)


@pytest.mark.parametrize(
    "namespace",
    ["", "a b", "a.b", "*", ">", "\u00e4", "x" * 65, "docs_SESSIONS", None, 7],
)
def test_a_bad_namespace_is_named(namespace: Any):
    with pytest.raises(ConfigError, match="namespace"):
        App(namespace)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"session_ttl_seconds": 0}, "session_ttl_seconds"),
        ({"ack_wait_seconds": -1.0}, "ack_wait_seconds"),
        ({"patience_seconds": float("inf")}, "patience_seconds"),
        ({"drain_seconds": float("nan")}, "drain_seconds"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 2.5}, "replicas must be a whole number"),
        ({"replicas": True}, "replicas"),
        ({"replicas": "3"}, "replicas"),
        ({"replicas": 7}, "replicas must be at most 5"),
        ({"storage": "disk"}, "storage must be file or memory, got 'disk'"),
        ({"storage": None}, "storage"),
        ({"session_ttl_seconds": True}, "session_ttl_seconds"),
        ({"session_ttl_seconds": 0.1}, "session_ttl_seconds must be at least 0.4"),
        ({"session_ttl_seconds": 10**400}, "session_ttl_seconds"),
        ({"sweep_seconds": None}, "sweep_seconds"),
        ({"repairs_at_once": 2.5}, "repairs_at_once must be a whole number"),
        ({"stuck_limit": False}, "stuck_limit"),
        ({"blob_limit_bytes": 1e9}, "blob_limit_bytes must be a whole number"),
        ({"ack_wait_seconds": 2.0, "request_timeout_seconds": 2.0}, "ack_wait_seconds.*request_timeout_seconds"),
        ({"idle_heartbeat_seconds": 40.0}, "pull_expires_seconds.*idle_heartbeat_seconds"),
        ({"wake_limit_bytes": 1_000_000}, "wake_limit_bytes.*inline_limit_bytes"),
        ({"inline_limit_bytes": 50_000_000}, "inline_limit_bytes.*blob_limit_bytes"),
        ({"inline_limit_bytes": 1_000_000}, "inline_limit_bytes.*131072"),
        ({"dead_kept_days": 0.01}, "dead_kept_days"),
    ],
)
def test_numbers_that_cannot_work_are_named(settings: dict[str, Any], words: str):
    """One place asserts the whole timing chain."""
    with pytest.raises(ConfigError, match=words):
        Config(**settings)


def test_help_explains_each_setting():
    """`help(tenure.Config)` shows the docstring of the class, not those of its fields."""
    text = Config.__doc__ or ""
    explained = dict(re.findall(r"^ *``(\w+)`` \((.*?)\): \S", text, re.MULTILINE))
    assert explained == {
        name: f"{value:g}" if type(value) is float else str(value) for name, value in asdict(Config()).items()
    }


class Seconds(float):
    """As a library of units or of numbers makes them."""


async def test_a_setting_of_a_class_of_its_own_is_stored_plain(
    app: App, nats_server: str, monkeypatch: pytest.MonkeyPatch
):
    """It goes into the entry of each session; so does the name of the machine, which may be any bytes."""
    monkeypatch.setattr(socket, "gethostname", lambda: "odd\udcff")
    app.config = replace(FAST, session_ttl_seconds=Seconds(3.0), stuck_limit=Whole.THREE)
    assert [type(app.config.session_ttl_seconds), type(app.config.stuck_limit)] == [float, int]
    async with app.connect(nats_server) as client, app.worker(nats_server) as worker:
        seen = await client.stores.sessions.read(worker.lease.id)
        assert seen is not None
        assert seen.session.ttl == 3.0


class Whole(IntEnum):
    THREE = 3


@pytest.mark.parametrize("config", [5, {}, 0, "", Config, {"drain_seconds": 5}])
def test_what_is_no_config_is_refused_by_the_app(config: Any):
    with pytest.raises(ConfigError, match=r"app n: config must be a tenure\.Config"):
        App("n", config=config)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"queue": "a.b"}, "queue"),
        ({"priority": "urgent"}, "priority"),
        ({"name": "a b"}, "actor"),
        ({"timeout": 0}, "timeout"),
        ({"grace": -1}, "grace"),
        ({"every": 0}, "every"),
        ({"result_ttl": float("inf")}, "result_ttl"),
        ({"overlap": "both"}, "overlap"),
    ],
)
def test_a_bad_actor_setting_is_named(settings: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):

        @App("n").actor(**settings)
        async def body() -> None: ...


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1.5}, "max_attempts"),
        ({"initial": -1.0}, "initial"),
        ({"maximum": float("nan")}, "maximum"),
        ({"factor": 0.5}, "factor"),
        ({"jitter": 1.5}, "jitter"),
    ],
)
def test_a_bad_retry_is_named(settings: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        Retry(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"queues": []}, "queue"), ({"queues": ["a b"]}, "queue"), ({"concurrency": 0}, "concurrency")],
)
def test_a_bad_worker_setting_is_named(settings: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        App("n").worker("nats://127.0.0.1:1", **settings)


# -- servers ---------------------------------------------------------------------------------------------------------


async def refusal(app: App, url: str, **options: Any) -> TenureError:
    """What connecting as a client and as a worker raises: the same for both."""
    errors = []
    for door in (app.connect(url, **options), app.worker(url, **options)):
        with pytest.raises(TenureError) as caught:
            async with door:
                pass
        errors.append(caught.value)
    assert type(errors[0]) is type(errors[1])
    return errors[0]


@pytest.fixture
def bare_server(tmp_path: Path) -> Iterator[list[str]]:
    """A nats-server without JetStream that wants a password; yields its url as soon as it is there."""
    config = tmp_path / "bare.conf"
    config.write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: {json.dumps(str(tmp_path))}\nauthorization {{ user: u, password: p }}\n'
    )
    process = subprocess.Popen([find_binary(), "-c", config], stderr=subprocess.DEVNULL)
    urls: list[str] = []

    def ready() -> bool:
        for file in tmp_path.glob("*.ports"):
            try:
                urls[:] = json.loads(file.read_text())["nats"][:1]
            except ValueError:  # half written
                return False
        return bool(urls)

    asyncio.run(wait_until(ready, description="the server is there"))
    yield urls
    process.terminate()
    process.wait()


async def test_a_server_without_jetstream_is_a_configuration_error(app: App, bare_server: list[str]):
    """JetStream answers nothing at all there: not a reason to try again for ever."""
    error = await refusal(app, bare_server[0], user="u", password="p")  # noqa: S106  (of the test's own server)
    assert isinstance(error, ConfigError)
    assert "JetStream" in str(error)


async def test_refused_credentials_are_a_configuration_error(app: App, bare_server: list[str]):
    """Said after a few tries: the server closes such connections so quickly that its reason is not always read."""
    patient = App(app.namespace, config=replace(FAST, connect_timeout_seconds=1.5))
    error = await refusal(patient, bare_server[0], user="u", password="no")  # noqa: S106  (a wrong one)
    assert isinstance(error, ConfigError)
    assert "credentials" in str(error)


@asynccontextmanager
async def server_saying(info: dict[str, Any]) -> AsyncIterator[str]:
    """Something that greets like a NATS server and answers pings."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while line := await reader.readline():
                if line.strip() == b"PING":
                    writer.write(b"PONG\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()


@pytest.mark.parametrize("version", ["2.11.9", "2.9.0", "1.4.1", "2.11.0-RC.1"])
async def test_a_server_that_is_too_old_is_a_configuration_error_with_both_versions(version: str, app: App):
    """Schedules and ttls per message would be silently ignored."""
    info = {
        "server_id": "x",
        "version": version,
        "max_payload": 1 << 20,
        "headers": True,
        "jetstream": True,
        "proto": 1,
    }
    async with server_saying(info) as url:
        error = await refusal(app, url)
    assert isinstance(error, ConfigError)
    assert version in str(error)
    assert "2.12" in str(error)


async def test_nobody_at_the_address_is_unavailable_with_the_address(app: App):
    error = await refusal(App(app.namespace, config=IMPATIENT), "nats://127.0.0.1:1")
    assert isinstance(error, Unavailable)
    assert "127.0.0.1:1" in str(error)


@pytest.mark.parametrize("url", ["nats://", "http://127.0.0.1:x", "nats://127.0.0.1:99999"])
async def test_what_is_no_address_is_an_error_that_shows_it(url: str, app: App):
    error = await refusal(App(app.namespace, config=IMPATIENT), url)
    assert isinstance(error, ConfigError | Unavailable)
    assert url in str(error)


# -- streams ---------------------------------------------------------------------------------------------------------


def lie_in_the_way(store: Path, stream: str) -> None:
    (streams,) = store.rglob("streams")
    (streams / stream).write_text("in the way")


async def test_a_stream_whose_files_could_not_be_made_at_first_is_made(namespace: str, tmp_path: Path):
    """Something is in their place. Such a refusal came from a cluster too, for one stream of thousands, and did not come again."""
    app = App(namespace)
    with EmbeddedServer(store=tmp_path) as server:
        async with App("other").connect(server.url):
            lie_in_the_way(tmp_path, app.names.runs_stream)
        async with app.connect(server.url) as client:
            assert await client.status("k") is None


DIFFERENCES = [
    ("runs_stream", {"allow_direct": True}, "allow_direct"),
    ("runs_stream", {"max_msgs_per_subject": 5}, "max_msgs_per_subject"),
    ("runs_stream", {"subject_delete_marker_ttl": 3_600_000_000_000}, "subject_delete_marker_ttl"),
    ("sessions_stream", {"max_msgs_per_subject": 2}, "max_msgs_per_subject"),
    ("work_stream", {"discard": "new", "allow_msg_schedules": False}, "allow_msg_schedules"),
    ("work_stream", {"retention": "limits"}, "retention"),
    ("blobs_stream", {"allow_rollup_hdrs": False}, "allow_rollup_hdrs"),
    ("dead_stream", {"deny_delete": False}, "deny_delete"),
    ("dead_stream", {"allow_msg_ttl": False}, "allow_msg_ttl"),
    ("inbox_stream", {"retention": "limits"}, "retention"),
    ("inbox_stream", {"allow_rollup_hdrs": True}, "allow_rollup_hdrs"),
]


@pytest.mark.parametrize(("stream", "changes", "field"), DIFFERENCES)
async def test_a_stream_with_other_settings_is_an_error_that_names_stream_and_setting(
    stream: str, changes: dict[str, Any], field: str, app: App, nats_server: str
):
    """Somebody made or changed it by hand; with these settings the protocol does not hold, so nobody starts."""
    name = getattr(app.names, stream)
    async with app.connect(nats_server) as client:
        api = client.stores.conn.api
        info = await api(f"STREAM.INFO.{name}", {})
        assert isinstance(info, dict)
        await api(f"STREAM.DELETE.{name}", {})
        made = await api(f"STREAM.CREATE.{name}", info["config"] | changes)
        assert isinstance(made, dict), made
        error = await refusal(app, nats_server)
    assert isinstance(error, ConfigError)
    assert name in str(error)
    assert field in str(error)


async def test_a_bucket_that_tenure_did_not_make_is_refused(app: App, nats_server: str):
    """Right in every setting but without its incarnation.

    Revisions in old wake-ups could not be told from new ones [12].
    """
    async with app.connect(nats_server) as client:
        api = client.stores.conn.api
        name = app.names.runs_stream
        info = await api(f"STREAM.INFO.{name}", {})
        assert isinstance(info, dict)
        await api(f"STREAM.DELETE.{name}", {})
        assert isinstance(await api(f"STREAM.CREATE.{name}", info["config"] | {"metadata": {}}), dict)
        error = await refusal(app, nats_server)
    assert isinstance(error, ConfigError)
    assert name in str(error)


async def test_a_subject_that_another_stream_already_has_is_a_configuration_error(app: App, nats_server: str):
    async with App(app.namespace + "-x").connect(nats_server) as other:
        squatter = {"name": f"SQUAT_{app.namespace}", "subjects": [app.names.work_prefix + ">"]}
        assert isinstance(await other.stores.conn.api(f"STREAM.CREATE.{squatter['name']}", squatter), dict)
        error = await refusal(app, nats_server)
        await other.stores.conn.api(f"STREAM.DELETE.{squatter['name']}", {})
    assert isinstance(error, ConfigError)
    assert "overlap" in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:4222",
        "nats://127.0.0.1:notaport",
        "127.0.0.1:99999",
        "nats://127.0.0.1:0",
        "nats://",
        "nats://a b:4222",
        "nats://[::1:4222",
        "nats://127.0.0.1:4222,",
        "nats://127.0.0.1:4222,ws://127.0.0.1:80",
        "unix:///run/nats",
    ],
)
async def test_a_url_that_cannot_be_one_is_refused_before_anybody_is_asked(app: App, url: str, monkeypatch: Any):
    async def asked(*_args: Any, **_options: Any) -> None:
        raise AssertionError("it was tried")

    monkeypatch.setattr("nats.aio.client.Client.connect", asked)
    for service in (app.connect(url), app.worker(url), app.supervisor(url)):
        with pytest.raises(ConfigError, match="cannot be the URL of a NATS server"):
            await service.__aenter__()


@pytest.mark.parametrize(
    "url",
    [
        "localhost",
        "a:4222, b",
        "nats://user:pass@a",
        "tls://a:4222",
        "[::1]:4222",
        "wss://a/path",
        "nats://a:1,tls://b",
    ],
)
def test_a_url_that_can_be_one_is_accepted(url: str):
    check_url(url)


@pytest.mark.one_server("a cluster has as many")
async def test_replicas_on_a_single_server_are_a_configuration_error_that_says_what_they_need(
    namespace: str, nats_server: str
):
    with pytest.raises(ConfigError, match=r"3 replicas need a cluster of as many servers"):
        async with App(namespace, config=replace(IMPATIENT, replicas=3)).connect(nats_server):
            pytest.fail("it connected")
