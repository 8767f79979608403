"""Every role of ``deploy/nats`` does all of its work with its own permissions, and meets none that is missing."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import nkeys  # type: ignore[import-untyped]  # it has no types
import pytest

from tenure import App, Client, Config, ConfigError, Context, Debounce, Fail, Limit, RateLimit, RunFailed, Unavailable
from tenure.bounds import bound_rows
from tenure.cli.root import run
from tenure.core.subjects import Names
from tenure.nats.accounts import configuration, permissions, variable
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.options import from_environment
from tenure.nats.roles import ROLES, inbox_of
from tenure.overview import queue_rows, session_rows
from tenure.supervisor.once import Repair
from tests.secured import DEPLOY, ROOT, Secured, environment, prepare, secured
from tests.strangers import Stranger, phase
from tests.support import wait_until

__all__ = ["secured"]
LARGE = 3_000_000
"""Bytes: more than what the server sends of an object before it wants to be asked for more."""


def make() -> App:
    app = App("docs")

    @app.actor
    async def add(ctx: Context, one: int, two: int = 1) -> int:
        await ctx.progress(1, 2, "adding")
        return one + two

    @app.actor
    async def hold(ctx: Context) -> None:
        await ctx.stopping.wait()

    @app.actor(limits=[Limit(1), RateLimit(100, timedelta(seconds=1))])
    async def narrow(ctx: Context, text: str) -> str:
        return text

    @app.actor(limits=[Debounce(0.1, 1.0)])
    async def settled() -> str:
        return "settled"

    @app.actor
    async def parent(ctx: Context) -> None:
        ctx.spawn(add.call(1), key="child")

    @app.actor(retry=None)
    async def broken() -> None:
        raise Fail("broken")

    return app


@asynccontextmanager
async def as_role(app: App, secured: Secured, role: str) -> AsyncIterator[Client]:
    async with app.connect(secured.url(role), **secured.options(role)) as client:
        yield client


@asynccontextmanager
async def at_work(app: App, secured: Secured) -> AsyncIterator[None]:
    """A supervisor and a worker, each with its own credentials."""
    url, options = secured.url, secured.options
    async with (
        app.supervisor(url("supervisor"), **options("supervisor")) as supervisor,
        app.worker(url("worker"), **options("worker")) as worker,
    ):
        running = [asyncio.create_task(one.run()) for one in (supervisor, worker)]
        yield
        worker.stop()
        supervisor.stop()
        await asyncio.gather(*running)


async def test_producers_workers_and_supervisors_do_everything_with_what_they_may(secured: Secured) -> None:
    app = make()
    call = {name: actor.call for name, actor in app.actors.items()}
    before = secured.violations()
    async with at_work(app, secured), as_role(app, secured, "producer") as client:
        assert await (await client.submit(call["add"](1), key="a")).result(10) == 2
        assert await (await client.submit(call["add"](1), key="later", delay=0.1)).result(10) == 2
        await client.submit(call["add"](1), key="far", delay=3600)
        assert (await client.cancel("far")).outcome == "cancelled"
        large = [await client.submit(call["narrow"]("x" * LARGE), key=f"n{number}") for number in range(3)]
        assert [len(await run.result(20)) for run in large] == [LARGE] * 3
        assert await (await client.submit(call["settled"](), key="s")).result(10) == "settled"
        await (await client.submit(call["parent"](), key="p")).wait(10)
        await wait_until(lambda: client.status("child"), description="it was spawned")
        held = await client.submit(call["hold"](), key="h")
        await wait_until(held.status, description="it is there")
        replaced = await client.replace(call["hold"](), key="h")
        await client.cancel("h")
        assert (await replaced.wait(10)).phase == "cancelled"
        with pytest.raises(RunFailed):
            await (await client.submit(call["broken"](), key="b")).result(10)
        async with as_role(app, secured, "supervisor") as operator:
            await operator.pause(queue="default")
            waiting = await client.submit(call["add"](3), key="w")
            await wait_until(lambda: _held(operator), description="it is held back")
            await operator.resume(queue="default")
            assert await waiting.result(10) == 4
            assert [one.key for one in await operator.dead.list()] == ["b"]
            await operator.dead.purge("b")
    assert secured.violations() == before


async def test_a_worker_hands_over_what_only_another_knows(secured: Secured) -> None:
    app, before = make(), secured.violations()
    other = App("docs", config=Config(session_ttl_seconds=2.0))
    other.actor(name="unlike")(lambda: None)
    url, options = secured.url("worker"), secured.options("worker")
    async with (
        at_work(app, secured),
        other.worker(url, **options) as worker,
        as_role(app, secured, "producer") as client,
    ):
        running = asyncio.create_task(worker.run())
        runs = [await client.submit(app.actors["add"].call(number)) for number in range(20)]
        assert [await run.result(10) for run in runs] == [number + 1 for number in range(20)]
        worker.stop()
        await running
    assert secured.violations() == before


async def _held(client: Client) -> bool:
    return await client.held_by("w") is not None


async def test_guests_are_heard_and_answered_from_their_own_account(secured: Secured) -> None:
    app = make()
    before = secured.violations()
    async with at_work(app, secured), as_role(app, secured, "producer") as client, secured.stranger("guest") as (nc, _):
        guest = Stranger(nc, "docs")
        answer = await nc.request(
            f"{guest.root}.api.submit.add", b'{"one": 40}', timeout=5, headers={"Tenure-Key": "g1"}
        )
        assert json.loads(answer.data)["key"] == "g1"
        assert json.loads(
            (await nc.request(f"{guest.root}.submit.add", b'{"one": 41}', headers={"Tenure-Key": "g2"})).data
        )
        assert json.loads((await nc.request(f"{guest.root}.submit.hold", b"", headers={"Tenure-Key": "g3"})).data)
        for key, value in (("g1", 41), ("g2", 42)):
            await phase(client, key)
            assert await (await client.run(key)).result(10) == value
        await phase(client, "g3")
        answer = await nc.request(f"{guest.root}.api.replace.hold", b"", timeout=5, headers={"Tenure-Key": "g3"})
        assert json.loads(answer.data)["generation"] == 2
        answer = await nc.request(f"{guest.root}.api.status", b"", timeout=5, headers={"Tenure-Key": "g3"})
        assert json.loads(answer.data)["generation"] == 2
        await nc.request(f"{guest.root}.api.cancel", b"", timeout=5, headers={"Tenure-Key": "g3"})
        assert (await (await client.run("g3")).wait(10)).phase == "cancelled"
    assert secured.violations() == before


async def test_a_viewer_sees_all_there_is_from_its_own_account(secured: Secured) -> None:
    app, heard = make(), list[object]()
    before = secured.violations()
    async with (
        at_work(app, secured),
        as_role(app, secured, "producer") as client,
        as_role(app, secured, "viewer") as viewer,
    ):
        stores = viewer.stores

        async def listen() -> None:
            async for event in (await viewer.run("v")).events():
                heard.append(event)

        held = await client.submit(app.actors["hold"].call(), key="v")
        listening = asyncio.create_task(listen())
        await wait_until(lambda: heard, description="it hears of the run")
        rows = await session_rows(stores, every=True)
        assert {"worker", "supervisor"} <= {row.kind for row in rows if row.state == "alive"}
        assert "default" in {lane.queue for lane in await queue_rows(stores, rows)}
        headers: list[str] = []
        await stores.runs.scan(lambda header: headers.append(header.key))
        assert "v" in headers
        await client.cancel("v")
        assert (await (await viewer.run("v")).wait(10)).phase == "cancelled"
        await wait_until(lambda: viewer.history("v"), description="the history is there")
        await viewer.blocks()
        await (await client.submit(app.actors["narrow"].call("x"), key="n")).result(10)  # its start counts for a second
        assert [row.actor for row in await bound_rows(stores)] == ["narrow"]
        await viewer.dead.list()
        await viewer.dead.rejected()
        await held.wait(10)
        await listening
    assert secured.violations() == before


async def test_one_sweep_is_a_supervisors_work(secured: Secured) -> None:
    before = secured.violations()
    async with Repair(make(), secured.url("supervisor"), options=secured.options("supervisor")) as repair:
        await repair.run()
    assert repair.done is not None
    assert (repair.done.failed, secured.violations()) == (0, before)


async def test_who_lacks_a_permission_is_told_which(secured: Secured) -> None:
    """Its request has not happened, and says why; nobody has to guess from a time that ran out."""
    app = App("docs", config=Config(request_timeout_seconds=0.2, patience_seconds=0.3, connect_timeout_seconds=1.0))
    async with as_role(app, secured, "producer") as client:
        with pytest.raises(Unavailable, match=r"this user may not publish to \$KV.TENURE_docs.switch.board"):
            await client.pause(queue="default")
    app = App("missing", config=app.config)
    with pytest.raises(Unavailable, match="this user may not publish to"):
        async with as_role(app, secured, "producer"):
            pass


# -- nkeys and TLS ---------------------------------------------------------------------------------------------------


def seed() -> tuple[str, str]:
    """A seed and its public key, of a user."""
    pair = nkeys.from_seed(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    return pair.seed.decode(), pair.public_key.decode()


def certify(folder: Path) -> None:
    """A key and a certificate for this machine, that vouches for itself."""
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
        "-keyout", f"{folder}/server-key.pem", "-out", f"{folder}/server-cert.pem",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)


async def test_with_tls_and_nkeys_everybody_is_let_in_by_what_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very files of ``deploy/nats``; and the processes that people start, which have no other way to be told."""
    certify(tmp_path)
    secrets = {}
    for role in ROLES:
        seed_of, secrets[variable("docs", role)] = seed()
        (tmp_path / f"{role}.nk").write_text(seed_of)

    def become(role: str) -> None:
        monkeypatch.setenv("TENURE_NATS_NKEY", str(tmp_path / f"{role}.nk"))
        monkeypatch.setenv("TENURE_NATS_INBOX", inbox_of(role))

    with environment(secrets), EmbeddedServer(config=prepare(tmp_path, tls=True, accounts="docs-nkeys.conf")) as server:
        hasty = Config(connect_timeout_seconds=0.5)
        monkeypatch.setenv("TENURE_NATS_URL", "tls://" + server.url.partition("//")[2])
        with pytest.raises(Unavailable, match="certificate"):
            async with App("docs", config=hasty).connect():
                pass
        monkeypatch.setenv("TENURE_NATS_CA", str(tmp_path / "server-cert.pem"))
        with pytest.raises(ConfigError, match="refuses these credentials"):
            async with App("docs", config=hasty).connect():
                pass
        become("setup")
        made = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "tenure.cli", "setup", "-n", "docs"], check=True, capture_output=True
        )
        assert b"created" in made.stdout
        app = make()
        become("worker")
        async with app.worker() as worker:
            become("producer")
            async with app.connect() as client:
                run = await client.submit(app.actors["add"].call(1))
                await worker.run_until_idle()
                assert await run.result(10) == 2


def token(kind: str, subject: str, name: str, by: nkeys.KeyPair, **about: object) -> str:
    """A JWT as NATS has them: what ``nsc`` makes."""
    issuer = by.public_key.decode()
    claims = {
        "iss": issuer,
        "sub": subject,
        "name": name,
        "iat": 1,
        "jti": name,
        "nats": {"type": kind, "version": 2} | about,
    }
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    said = ".".join(coded(json.dumps(part).encode()) for part in (head, claims))
    return f"{said}.{coded(by.sign(said.encode()))}"


def coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def pair(prefix: int) -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))


async def test_credentials_files_with_the_permissions_that_are_printed_as_json_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, account, system = (
        pair(getattr(nkeys, f"PREFIX_BYTE_{who}")) for who in ("OPERATOR", "ACCOUNT", "ACCOUNT")
    )
    unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf", "mem_storage",
                               "disk_storage", "streams", "consumer"), -1) | {"wildcards": True}  # fmt: skip
    tokens = {}
    for one, called, disk in ((account, "docs", -1), (system, "SYS", 0)):
        limits = unlimited | {"disk_storage": disk, "mem_storage": disk}
        tokens[one.public_key.decode()] = token("account", one.public_key.decode(), called, operator, limits=limits)
    for role, may in permissions(Names("docs")).items():
        user = pair(nkeys.PREFIX_BYTE_USER)
        about = {
            "pub": {"allow": may["publish"]},
            "sub": {"allow": may["subscribe"]},
            "subs": -1,
            "data": -1,
            "payload": -1,
        }
        of_user = token("user", user.public_key.decode(), role, account, **about)
        (tmp_path / f"{role}.creds").write_text(
            f"-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
    shutil.copy(ROOT / "nats.conf", tmp_path)
    config = tmp_path / "server.conf"
    config.write_text(
        f'include "nats.conf"\noperator: {token("operator", operator.public_key.decode(), "o", operator)}\n'
        f"system_account: {system.public_key.decode()}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {', '.join(f'{name}: {value}' for name, value in tokens.items())} }}\n"
    )

    def become(role: str) -> None:
        monkeypatch.setenv("TENURE_NATS_CREDS", str(tmp_path / f"{role}.creds"))
        monkeypatch.setenv("TENURE_NATS_INBOX", inbox_of(role))

    app = make()
    with EmbeddedServer(config=config) as server:
        become("setup")
        await Secured.set_up_at(server.url, Names("docs"))
        become("worker")
        async with app.worker(server.url) as worker:
            become("producer")
            async with app.connect(server.url) as client:
                run = await client.submit(app.actors["add"].call(1))
                await worker.run_until_idle()
                assert await run.result(10) == 2


def test_a_file_in_the_environment_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert from_environment() == {}
    for name in ("TENURE_NATS_CREDS", "TENURE_NATS_NKEY", "TENURE_NATS_CA", "TENURE_NATS_CERT"):
        with monkeypatch.context() as patch:
            patch.setenv(name, str(tmp_path / "absent"))
            with pytest.raises(ConfigError, match=rf"\${name} is a .*No such file"):
                from_environment()
    (tmp_path / "empty").touch()
    monkeypatch.setenv("TENURE_NATS_CA", str(tmp_path / "empty"))
    with pytest.raises(ConfigError, match="TENURE_NATS_CA"):
        from_environment()


# -- the files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nkeys", [False, True])
def test_the_files_are_what_the_command_prints(nkeys: bool) -> None:
    """Else: ``tenure permissions -n docs > deploy/nats/docs.conf``, and the same with ``--nkeys`` into the other."""
    name = "docs-nkeys.conf" if nkeys else "docs.conf"
    assert (DEPLOY / name).read_text() == configuration(Names("docs"), nkeys=nkeys)


def test_a_guest_may_be_held_to_some_actors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["permissions", "-n", "docs", "--actor", "extract", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["guest"]["publish"][:2] == [
        "tenure.docs.submit.extract",
        "tenure.docs.replace.extract",
    ]
    assert run(["permissions", "-n", "docs", "--actor", "a.>"]) == 2
