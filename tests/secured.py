"""A server as ``deploy/nats`` has it, a user of each role on it, and every class of subjects there is."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client as NatsClient

from tenure import Config
from tenure.clock import SYSTEM
from tenure.core.subjects import Names
from tenure.nats.accounts import configuration, variable
from tenure.nats.connection import Connection
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.roles import ROLES, inbox_of
from tenure.nats.topology import ensure

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy" / "nats"
DOCS, OTHER = Names("docs"), Names("other")
PASSWORD = "secret"  # noqa: S105  (it protects nothing)


class Secured:
    """Where it is, and with which options one connects to it as a role."""

    def __init__(self, address: str, log: Path) -> None:
        self.address = address
        self._log = log

    def violations(self) -> list[str]:
        """What the server's log has of permissions that were missing, in order."""
        return re.findall(r"\S+ \S+ - (?:Publish|Subscription) Violation.*", self._log.read_text())

    def url(self, role: str, namespace: str = "docs") -> str:
        return f"nats://{namespace}-{role}:{PASSWORD}@{self.address}"

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[NatsClient]:
        """Who sees everything in the account of ``docs``."""
        connected = await nats.connect(f"nats://admin:{PASSWORD}@{self.address}", max_reconnect_attempts=0)
        try:
            yield connected
        finally:
            await connected.close()

    @staticmethod
    def options(role: str) -> dict[str, Any]:
        return {"inbox_prefix": inbox_of(role).encode()}

    async def set_up(self, names: Names) -> None:
        await self.set_up_at(self.url("setup", names.namespace), names, **self.options("setup"))

    @staticmethod
    async def set_up_at(url: str, names: Names, **options: Any) -> None:
        config = Config()
        conn = await Connection.open(url, config, name="setup", **options)
        try:
            changes = (await ensure(conn, names, SYSTEM, config, migrate=True)).changes
        finally:
            await conn.close()
        assert {change.did for change in changes} == {"created"}

    @asynccontextmanager
    async def stranger(self, role: str) -> AsyncIterator[tuple[NatsClient, list[str]]]:
        """Somebody with a role's credentials and nothing of Tenure; and what the server refuses to let it do."""
        denied: list[str] = []

        async def note(error: Exception) -> None:
            found = re.search(
                r'permissions violation for (publish|subscription) (?:to|with reply of) "([^"]*)"', str(error)
            )
            assert found, error
            denied.append(f"{'publish' if found[1] == 'publish' else 'subscribe'} {found[2]}")

        connected = await nats.connect(
            self.url(role), error_cb=note, max_reconnect_attempts=0, inbox_prefix=inbox_of(role).encode()
        )
        try:
            yield connected, denied
        finally:
            await connected.close()


def prepare(folder: Path, *, tls: bool, accounts: str = "docs.conf", more: str = "") -> Path:
    """Lay the files of ``deploy/nats`` out as an administrator would, and return the one to start from.

    The namespace's account has one user more, ``admin``, who may do everything in it: to see with what others did.
    """
    shutil.copy(ROOT / "nats.conf", folder)
    shutil.copy(DEPLOY / accounts, folder)
    mine = (folder / accounts).read_text().replace("users: [", f"users: [\n{{ user: admin, password: {PASSWORD} }}", 1)
    (folder / accounts).write_text(mine)
    text = (DEPLOY / "server.conf").read_text()
    assert 'include "docs.conf"' in text
    text = text.replace('include "docs.conf"', f'include "{accounts}"\n{more}').replace("/etc/nats/", f"{folder}/")
    if not tls:
        text = re.sub(r"^tls \{.*?^\}", "", text, flags=re.DOTALL | re.MULTILINE)
    path = folder / "server.conf"
    path.write_text(text)
    return path


@contextmanager
def environment(secrets: dict[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NATS_SYS", PASSWORD)
        for name, value in secrets.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """With the namespaces ``docs`` and ``other`` set up, each in its account."""
    folder = tmp_path_factory.mktemp("secured")
    (folder / "other.conf").write_text(configuration(OTHER))
    config = prepare(folder, tls=False, more='include "other.conf"')
    secrets = {variable(names.namespace, role): PASSWORD for names in (DOCS, OTHER) for role in ROLES}
    with environment(secrets), EmbeddedServer(config=config, log_file=folder / "log") as server:
        found = Secured(server.url.removeprefix("nats://"), folder / "log")

        async def both() -> None:
            await found.set_up(DOCS)
            await found.set_up(OTHER)

        asyncio.run(both())
        yield found
