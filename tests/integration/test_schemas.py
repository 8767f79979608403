"""A rolling upgrade: `tenure setup` goes forward and never back, and processes of two releases share a namespace."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import App, Client, ConfigError
from tenure.core.records import SCHEMA
from tenure.nats.topology import Topology, differences, ensure

NEWER = SCHEMA + 1


async def setup(client: Client) -> Topology:
    stores = client.stores
    return await ensure(stores.conn, stores.names, stores.clock, stores.config, migrate=True)


async def config_of(client: Client, stream: str) -> dict[str, Any]:
    info = await client.stores.conn.api(f"STREAM.INFO.{stream}", {})
    assert isinstance(info, dict)
    return dict(info["config"])


async def set_up_by(client: Client, schema: str) -> str:
    """As a ``setup`` of another release left it; the incarnation."""
    name = client.stores.names.runs_stream
    config = await config_of(client, name)
    config["metadata"] |= {"tenure.schema": schema}
    await client.stores.conn.api(f"STREAM.UPDATE.{name}", config)
    return str(config["metadata"]["tenure.incarnation"])


async def test_a_new_namespace_says_its_schema(client: Client):
    metadata = (await config_of(client, client.stores.names.runs_stream))["metadata"]
    assert metadata["tenure.schema"] == str(SCHEMA)


@pytest.mark.parametrize("schema", ["", "1", str(SCHEMA - 1)])
async def test_setup_takes_an_older_namespace_forward(schema: str, client: Client):
    incarnation = await set_up_by(client, schema)
    name = client.stores.names.runs_stream
    told = await differences(client.stores.conn, client.stores.names, client.stores.config)
    wanted = f"schema is {schema}, must be {SCHEMA}"
    assert [change.details for change in told.changes if change.did == "differs"] == [(wanted,)]
    made = await setup(client)
    assert [(change.stream, change.details) for change in made.changes if change.did == "updated"] == [
        (name, (wanted,))
    ]
    assert made.incarnation == incarnation
    assert (await config_of(client, name))["metadata"]["tenure.schema"] == str(SCHEMA)
    assert {change.did for change in (await setup(client)).changes} == {"unchanged"}


async def test_an_older_namespace_is_open_to_newer_processes_before_their_setup(
    app: App, client: Client, nats_server: str
):
    await set_up_by(client, "1")
    async with app.connect(nats_server):
        pass
    assert (await config_of(client, client.stores.names.runs_stream))["metadata"]["tenure.schema"] == "1"


async def test_setup_refuses_to_go_back_and_changes_nothing(client: Client):
    """Its stream of stop signals has a setting that this release would set otherwise."""
    await set_up_by(client, str(NEWER))
    name = client.stores.names.sessions_stream
    changed = await config_of(client, name) | {"max_msgs_per_subject": 2}
    await client.stores.conn.api(f"STREAM.UPDATE.{name}", changed)
    before = await config_of(client, name)
    with pytest.raises(ConfigError) as error:
        await setup(client)
    assert str(error.value) == (
        f"namespace {client.stores.names.namespace} was set up by a newer Tenure (schema {NEWER}, this one knows up to "
        f"{SCHEMA}) and is not taken back: run the newer one's `tenure setup`"
    )
    assert await config_of(client, name) == before


async def test_a_process_starts_on_what_a_newer_setup_has_changed(app: App, client: Client, nats_server: str):
    """In a rolling upgrade old workers are restarted too. Nobody but a newer one may leave settings that differ."""
    name = client.stores.names.sessions_stream
    await client.stores.conn.api(f"STREAM.UPDATE.{name}", await config_of(client, name) | {"max_msgs_per_subject": 2})
    with pytest.raises(ConfigError, match="max_msgs_per_subject is 2, must be 1"):
        async with app.connect(nats_server):
            pass
    await set_up_by(client, str(NEWER))
    async with app.connect(nats_server):
        pass
