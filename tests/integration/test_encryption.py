"""Encryption of what users give: it is nowhere on the server in clear; keys change; what does not open stops nobody."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import nats
import pytest

from tenure import (
    App,
    Client,
    Context,
    Cooldown,
    Debounce,
    EncryptedRecord,
    Encryption,
    Fail,
    KeyConflict,
    Limit,
    Outcome,
    RateLimit,
    RunCancelled,
    RunFailed,
)
from tenure.core.sessions import Progress
from tenure.core.switches import place_of
from tenure.testing import nats_server as own_server
from tests.canaries import Canaries, Eavesdropper, files, messages
from tests.conftest import Supervisors, Workers
from tests.strangers import Stranger, phase, rejected, until_empty
from tests.support import FAST, wait_until

OLD, NEW = os.urandom(32), os.urandom(32)
LARGE = "x" * 200_000
"""Over the inline limit."""


def key(number: int = 1) -> Encryption:
    """The keys of a process: the old one alone, both with the new one current, the new one alone."""
    return {
        1: Encryption({"old": OLD}, "old"),
        2: Encryption({"new": NEW, "old": OLD}, "new"),
        3: Encryption({"new": NEW}, "new"),
    }[number]


def app_of(namespace: str, encryption: Encryption | None, hook: str = "told") -> App:
    """An app whose bodies say, return and raise what they are given."""
    app = App(namespace, config=FAST, encryption=encryption)

    @app.actor(retry=None)
    async def echo(text: str) -> str:
        return text

    @app.actor(result_ttl=1)
    async def brief(text: str) -> str:
        return text

    @app.actor
    async def told(outcome: Outcome) -> None:
        """A hook."""

    @app.actor
    async def noted(text: str) -> None:
        """Another one."""

    @app.actor(on_success=[told, noted.call(hook)], on_cancel=told, on_failure=told)
    async def work(ctx: Context, text: str, spawned: str, again: str, note: str, large: str) -> dict[str, str]:
        await ctx.progress(1, 2, note)
        ctx.spawn(echo.call(spawned), key="spawned")
        ctx.reschedule(delay=3_600, call=echo.call(again))
        return {"said": text, "large": large}

    @app.actor(limits=[Limit(1, per="site"), RateLimit(1, 3_600, per="site", excess="delay")])
    async def capped(site: str) -> str:
        return site

    @app.actor(limits=[Debounce(3_600, 3_600), Cooldown(60)])
    async def settled(text: str) -> str:
        return text

    @app.actor(retry=None)
    async def dies(text: str, said: str) -> None:
        raise Fail(said)

    @app.actor
    async def waits(ctx: Context, text: str) -> None:
        await ctx.stopping.wait()

    return app


# -- nothing in clear ------------------------------------------------------------------------------------------------


@pytest.mark.one_server("its own server's files are read")
@pytest.mark.parametrize("encryption", [None, key()], ids=["off", "on"])
async def test_what_users_give_is_nowhere_on_the_server(
    encryption: Encryption | None, namespace: str, tmp_path: Path
) -> None:
    """Every way there is into a store: each canary is found where nothing is encrypted, and none where it is."""
    canary, ear, store = Canaries(), Eavesdropper(), tmp_path / "store"
    app = app_of(namespace, encryption, canary("hook"))
    with own_server(store=store) as url:
        connected = await nats.connect(url)
        await connected.subscribe(f"tenure.{namespace}.event.>", cb=ear.hear)
        await connected.subscribe(f"tenure.{namespace}.note.>", cb=ear.hear)
        stranger = Stranger(connected, namespace)
        async with app.connect(url) as client:
            async with Workers(url).run(app) as running, Supervisors(url).run(app):
                await everything_once(app, client, stranger, canary)
                await until_empty(stranger, client)
            assert not running.worker.metrics.errors["handler"]
            heard = b"\n".join(ear.heard)
            stored = await messages(url)
        await connected.close()
    told, left = canary.found_in(stored + heard), canary.found_in(files(store))
    if encryption is None:
        assert told | left == set(canary.made)
    else:  # a publisher's message is in clear until it is applied, and its bytes in the inbox's file until that is compacted
        assert not told
        assert left <= {"inbox", "rejected", "header"}


async def everything_once(app: App, client: Client, stranger: Stranger, canary: Canaries) -> None:
    actors: dict[str, Any] = dict(app.actors)
    call = actors["work"].call(
        text=canary("result"),
        spawned=canary("spawned"),
        again=canary("again"),
        note=canary("progress"),
        large=LARGE + canary("blob"),
    )
    run = await client.submit(call, key="work")
    assert (await run.result(timeout=10))["said"] == canary("result")
    await phase(client, "spawned", "succeeded")
    await phase(client, "work", "scheduled")
    for _ in range(2):  # the second waits for the first one's window
        await client.submit(actors["capped"].call(canary("limit")))
    await client.submit(actors["settled"].call(canary("debounced")), key="settled")
    died = await client.submit(actors["dies"].call(canary("died"), canary("failure")), key="dies")
    with pytest.raises(RunFailed, match=canary("failure")):
        await died.result(timeout=10)
    replayed = await client.dead.replay("dies")  # which remembers how the first one died
    assert replayed is not None
    with pytest.raises(RunFailed):
        await replayed.result(timeout=10)
    waiting = await client.submit(actors["waits"].call(canary("stopped")), key="waits")
    await phase(client, "waits", "running")
    await waiting.cancel(reason=canary("reason"))
    with pytest.raises(RunCancelled, match=canary("reason")):
        await waiting.result(timeout=10)
    await client.submit(actors["echo"].call(canary("delayed")), key="delayed", delay=3_600)
    block = await client.block(actor="echo", args={"text": canary("blocked")})
    held = await client.submit(actors["echo"].call(canary("blocked")), key="held")
    parked = client.stores.switches.parked
    await wait_until(lambda: parked(place_of(block.id), client.stores.runs.patience()), description="it is parked")
    assert await client.held_by(held.key)
    await stranger.send("submit.echo", {"text": canary("inbox")}, Tenure_Key="stranger")
    await phase(client, "stranger", "succeeded")
    await stranger.send("submit.echo", {"wrong": canary("rejected")}, Tenure_Key="wrong")
    await stranger.send("submit.echo", {"text": "t"}, Tenure_Key="wrong too", Tenure_Delay=canary("header"))
    await rejected(client, 2)


# -- keys that come and go -------------------------------------------------------------------------------------------


async def test_a_key_is_rotated_while_tasks_wait(namespace: str, nats_server: str) -> None:
    """Old processes beside new ones, then none of them; what the old key has encrypted is read for as long as it is known."""
    apps = [app_of(namespace, key(1)), app_of(namespace, key(2)), app_of(namespace, key(3))]
    async with apps[0].connect(nats_server) as client:
        await client.submit(apps[0].actors["echo"].call("before"), key="before")
        await client.submit(apps[0].actors["echo"].call("unread"), key="unread", delay=3_600)
    async with apps[1].connect(nats_server) as client:
        await client.submit(apps[1].actors["echo"].call("after"), key="after")
        async with Workers(nats_server).run(apps[1]):
            assert [await (await client.run(one)).result(timeout=10) for one in ("before", "after")] == [
                "before",
                "after",
            ]
        assert await _key_ids(client, "before", "unread", "after") == ["new", "old", "new"]
    async with apps[2].connect(nats_server) as client:
        assert await (await client.run("before")).result(timeout=10) == "before"
        with pytest.raises(EncryptedRecord, match=r"'unread'.*'old'") as told:
            await client.status("unread")
        assert (told.value.key, told.value.key_id) == ("unread", "old")


async def _key_ids(client: Client, *keys: str) -> list[str]:
    return [(await _stored(client, one)).split(b"\n")[1].decode() for one in keys]


async def _stored(client: Client, one: str) -> bytes:
    names = client.stores.names
    answer = await client.stores.conn.api(f"STREAM.MSG.GET.{names.runs_stream}", {"last_by_subj": names.record(one)})
    return base64.b64decode(answer["message"]["data"])  # type: ignore[index]  # an answer


@pytest.mark.parametrize("lacking", [None, key(3)], ids=["no keys", "other keys"])
async def test_who_lacks_the_key_hands_the_task_over_to_who_has_it(
    lacking: Encryption | None, namespace: str, nats_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not failed, not lost, and the worker goes on with what it can read; supervisors pass it over."""
    without, owner = app_of(namespace, lacking), app_of(namespace, key(1))
    async with owner.connect(nats_server) as client, without.connect(nats_server) as other:
        async with Workers(nats_server).run(without) as running, Supervisors(nats_server).run(without):
            run = await client.submit(owner.actors["echo"].call("sealed"), key="k")
            claims = running.worker.metrics.claims
            await wait_until(lambda: claims["", "encrypted"], description="it was looked at")
            readable = await other.submit(without.actors["echo"].call("readable"), key="readable")
            assert await readable.result(timeout=10) == "readable"
            with pytest.raises(EncryptedRecord, match=r"'k' is encrypted \(key id 'old'\)"):
                await other.submit(without.actors["echo"].call("mine"), key="k")
            with pytest.raises(EncryptedRecord):
                await other.cancel("k")
            status = await client.status("k")
            assert status is not None
            assert (status.phase, status.attempt) == ("queued", 0)
            assert not running.worker.metrics.errors["handler"]
        assert any(
            "record.encrypted" in record.getMessage() and "'old'" in record.getMessage() for record in caplog.records
        )
        async with Workers(nats_server).run(owner):
            assert await run.result(timeout=10) == "sealed"


async def test_it_is_turned_on_and_off_while_tasks_wait(namespace: str, nats_server: str) -> None:
    """First everybody learns the keys, then they encrypt; and the other way back. Plain and encrypted lie side by side."""
    reads_only = app_of(namespace, Encryption({"old": OLD}, None))
    off, on = app_of(namespace, None), app_of(namespace, key(1))
    async with off.connect(nats_server) as client:
        await client.submit(off.actors["echo"].call("plain"), key="plain", delay=3_600)
        await client.submit(off.actors["echo"].call(LARGE), key="plain blob", delay=3_600)
    async with on.connect(nats_server) as client:
        await client.submit(on.actors["echo"].call("sealed"), key="sealed", delay=3_600)
        await client.submit(on.actors["echo"].call(LARGE), key="sealed blob", delay=3_600)
    expected = {"plain": "plain", "plain blob": LARGE, "sealed": "sealed", "sealed blob": LARGE}
    async with reads_only.connect(nats_server) as client, Workers(nats_server).run(reads_only):
        for one, value in expected.items():
            assert await (await client.trigger(one)).result(timeout=10) == value
    async with off.connect(nats_server) as client:
        for one, value in expected.items():
            if value != LARGE:
                assert await (await client.run(one)).result(timeout=10) == value


async def test_an_expired_record_is_over_for_who_lacks_its_key_too(namespace: str, nats_server: str) -> None:
    """Its key may be taken up again by who encrypts otherwise, or not at all."""
    owner, without = app_of(namespace, key(1)), app_of(namespace, None)
    async with owner.connect(nats_server) as client, Workers(nats_server).run(owner):
        run = await client.submit(owner.actors["brief"].call("sealed"), key="k")
        assert await run.result(timeout=10) == "sealed"
    async with without.connect(nats_server) as other:

        async def over() -> bool:
            try:
                return await other.status("k") is None
            except EncryptedRecord:
                return False

        await wait_until(over, description="it has expired")
        assert (await other.submit(without.actors["brief"].call("plain"), key="k")).accepted


# -- what is no more what was stored ---------------------------------------------------------------------------------


async def test_a_record_that_is_copied_to_another_key_does_not_open(namespace: str, nats_server: str) -> None:
    """With the other key's name written over it as well: the box knows where it belongs."""
    app = app_of(namespace, key(1))
    async with app.connect(nats_server) as client:
        await client.submit(app.actors["echo"].call("secret"), key="mine")
        data = await _stored(client, "mine")
        for forged in (data, data.replace(b'"key":"mine"', b'"key":"theirs"'), data[:-1] + bytes([data[-1] ^ 1])):
            one = "mine" if forged[:-1] == data[:-1] and forged != data else "theirs"
            await _overwrite(client, one, forged)
            with pytest.raises(EncryptedRecord, match=f"{one}.*'old'.* does not open"):
                await client.status(one)
        async with Workers(nats_server).run(app) as running:
            claims = running.worker.metrics.claims
            await wait_until(lambda: claims["", "encrypted"] >= 2, description="it was looked at, and again")
            fine = await client.submit(app.actors["echo"].call("fine"), key="fine")
            assert await fine.result(timeout=10) == "fine"
            assert not running.worker.metrics.errors["handler"]


async def _overwrite(client: Client, one: str, data: bytes) -> None:
    await client.stores.conn.put(client.stores.names.record(one), data, {})


async def test_a_blob_that_was_exchanged_does_not_open(namespace: str, nats_server: str) -> None:
    """For another run's, or for a plain one: the run fails for good and says why; its dead letter keeps it."""
    app = app_of(namespace, key(1))
    async with app.connect(nats_server) as client:
        runs = [await client.submit(app.actors["echo"].call(LARGE), key=one, delay=3_600) for one in ("a", "b", "c")]
        bucket = await client.stores.conn.raw.jetstream().object_store(client.stores.names.blobs_bucket)
        other = (await bucket.get(f"{runs[2].run_id}.args")).data
        assert other is not None
        await bucket.put(f"{runs[0].run_id}.args", other)
        await bucket.put(f"{runs[1].run_id}.args", json.dumps({"text": "forged"}).encode())
        async with Workers(nats_server).run(app):
            for run, why in zip(runs[:2], ("does not open", "damaged"), strict=True):
                await client.trigger(run.key)
                with pytest.raises(RunFailed, match=f"{run.run_id}.args.* {why}"):
                    await run.result(timeout=10)
                assert await client.dead.get(run.key) is not None


async def test_large_arguments_differ_though_they_are_encrypted(namespace: str, nats_server: str) -> None:
    """And are the same, whoever stored them: with another key, or with none."""
    apps = {number: app_of(namespace, key(number) if number else None) for number in (0, 1, 2)}
    async with apps[1].connect(nats_server) as client, apps[2].connect(nats_server) as other:
        echo = apps[1].actors["echo"]
        run = await client.submit(echo.call(LARGE), key="k", delay=3_600)
        assert not (await client.submit(echo.call(LARGE), key="k", if_differs="error")).accepted
        assert not (await other.submit(apps[2].actors["echo"].call(LARGE), key="k", if_differs="error")).accepted
        with pytest.raises(KeyConflict):
            await client.submit(echo.call(LARGE + "!"), key="k", if_differs="error")
        async with apps[0].connect(nats_server) as plain:
            before = await plain.submit(apps[0].actors["echo"].call(LARGE), key="plain", delay=3_600)
            assert not (await client.submit(echo.call(LARGE), key="plain", if_differs="error")).accepted
        for each in (run, before):
            record = (await client.stores.runs.read(each.key)).record
            assert record is not None
            assert record.task.blob is not None
            assert (record.task.blob.digest.encode() in await _stored(client, each.key)) == (each is before)


async def test_who_lacks_the_key_of_large_arguments_alone_does_not_fail_the_run(
    namespace: str, nats_server: str
) -> None:
    """The record was written anew, with the newer key; what it names was not."""
    rotated, newest = app_of(namespace, key(2)), app_of(namespace, key(3))
    async with app_of(namespace, key(1)).connect(nats_server) as client, rotated.connect(nats_server) as both:
        run = await client.submit(rotated.actors["echo"].call(LARGE), key="k", delay=3_600)
        await both.trigger("k")
        async with Workers(nats_server).run(newest) as running:
            await wait_until(
                lambda: running.worker.metrics.outcomes["echo", "snoozed"], description="it is left to who has the key"
            )
        async with Workers(nats_server).run(rotated):
            assert await (await both.run("k")).result(timeout=20) == LARGE
        assert (await both.run("k")).run_id == run.run_id


async def test_a_dead_letter_whose_key_is_missing_is_listed_and_not_replayed(namespace: str, nats_server: str) -> None:
    """A replay of what can be read of it would run with other arguments. Nor is one that was copied to another key's place."""
    owner, without = app_of(namespace, key(1)), app_of(namespace, None)
    async with owner.connect(nats_server) as client, Workers(nats_server).run(owner):
        run = await client.submit(owner.actors["dies"].call("t", "why it died"), key="k")
        with pytest.raises(RunFailed):
            await run.result(timeout=10)
        async with without.connect(nats_server) as other:
            (letter,) = await other.dead.list()
            assert (letter.key, letter.failure.message) == ("k", "encrypted (key id 'old')")
            with pytest.raises(EncryptedRecord, match="the dead letter of 'k' is encrypted"):
                await other.dead.replay("k")
        (letter,) = await client.dead.list()
        assert letter.failure.message == "why it died"
        names = client.stores.names
        asked = {"last_by_subj": names.dead("dies", "k", run.run_id)}
        answer = await client.stores.conn.api(f"STREAM.MSG.GET.{names.dead_stream}", asked)
        data = base64.b64decode(answer["message"]["data"])  # type: ignore[index]  # an answer
        await client.stores.conn.put(names.dead("dies", "theirs", run.run_id), data, {})
        assert [one.key for one in await client.dead.list()] == ["k"]


async def test_who_lacks_the_key_sees_that_there_is_progress_and_starts_nothing_past_a_block(
    namespace: str, nats_server: str
) -> None:
    owner, without = app_of(namespace, key(1)), app_of(namespace, None)
    async with owner.connect(nats_server) as client, without.connect(nats_server) as other:
        await client.stores.sessions.note("k", Progress(run_id="r", attempt=1, done=3, total=4, note="page 3", at=1.0))

        async def noted() -> Progress | None:
            return await other.stores.sessions.progress("k", "r")

        progress = await wait_until(noted, description="it is stored")
        assert (progress.done, progress.total, progress.note) == (0.0, None, "encrypted (key id 'old')")
        shown = await client.stores.sessions.progress("k", "r")
        assert shown is not None
        assert (shown.done, shown.total, shown.note) == (3, 4, "page 3")
        await client.block(actor="echo", args={"text": "t"})
        with pytest.raises(EncryptedRecord, match="what is blocked is encrypted"):
            await other.pause(queue="default")
        async with without.worker(nats_server) as worker:
            running = asyncio.create_task(worker.run())
            await wait_until(lambda: "what is blocked is encrypted" in worker.why_not_ready, description="it says so")
            worker.stop()
            await running
