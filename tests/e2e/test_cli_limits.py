"""``tenure limits``, as people and scripts read it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from tenure import App
from tests.e2e.commands import Cli
from tests.e2e.test_cli_above import until
from tests.support import FAST


def by_what(own: Cli, *arguments: str) -> dict[tuple[str, Any], dict[str, Any]]:
    return {(row["actor"], row["value"]): row for row in own.fast_json("limits", *arguments)}


def fetch(own: Cli, key: str, site: str) -> None:
    own.fast("submit", "tasks:app", "fetch", "--key", key, "--arg", f"site={site}")


def test_limits_tell_who_has_the_places_and_who_waits(own: Cli) -> None:
    own.fast("setup", "tasks:app")
    assert own.fast_json("limits") == []
    with own.worker("--with-supervisor"):
        fetch(own, "a0", "a.org")
        until(lambda: own.fast_json("show", "a0")["phase"] == "running", "the first has its place")
        for key, site in (("a1", "a.org"), ("a2", "a.org"), ("b0", "b.org")):
            fetch(own, key, site)

        def settled() -> bool:
            rows = by_what(own)
            return ("fetch", "b.org") in rows and rows["fetch", "a.org"]["waiting"] == 2

        until(settled, "two wait")
        rows = by_what(own)
        assert next(iter(rows)) == ("fetch", "a.org"), "the most waited for comes first"
        assert set(rows) == {("fetch", "a.org"), ("fetch", None), ("fetch", "b.org")}
        busy, whole = rows["fetch", "a.org"], rows["fetch", None]
        assert (busy["kind"], busy["per"], busy["n"], busy["in_use"], busy["seconds"]) == ("limit", "site", 1, 1, None)
        (worker,) = [row["id"] for row in own.fast_json("sessions") if row["kind"] == "worker"]
        (place,) = busy["held_by"]
        assert (place["key"], place["session"]) == ("a0", worker)
        assert place["since"] <= busy["since"], "who waits came after it"
        assert (whole["per"], whole["n"], whole["in_use"], whole["waiting"]) == (None, 3, 2, 0)
        assert re.search(r'limit +fetch site="a.org" +1 at once +1 +2 +[\d :-]{8,16} +a0 *\n', own("limits").stdout)


def test_rates_tell_what_was_started_and_who_waits(own: Cli) -> None:
    """Of those that have started no entry names anybody: their latest runs tell what they have in common."""
    with own.worker("--with-supervisor"):
        for number in range(2):
            own.fast("submit", "tasks:app", "mail", "--key", f"m{number}", "--arg", "to=ada", "--wait")
        row = by_what(own)["mail", "ada"]
        assert (row["kind"], row["per"], row["n"], row["seconds"]) == ("rate", "to", 2, 3600.0)
        assert (row["in_use"], row["waiting"], row["since"], row["held_by"]) == (2, 0, None, [])
        own.fast("submit", "tasks:app", "mail", "--key", "m2", "--arg", "to=ada")
        until(lambda: by_what(own)["mail", "ada"]["waiting"] == 1, "the third waits")
        assert re.search(r'rate +mail to="ada" +2 in 3600 s +2 +1 +[\d :-]{8,16} ', own.fast("limits")[0])
        fetch(own, "f", "a.org")
        until(lambda: len(own.fast_json("limits")) == 3, "another actor's limits are in use")
        assert set(by_what(own, "--actor", "mail")) == {("mail", "ada")}


def test_a_limit_of_which_only_who_waits_is_stored_is_told(own: Cli) -> None:
    """What nothing is known of is told too: an entry that was lost, and an argument that no record has any more."""
    with own.worker("--with-supervisor"):
        for number in range(3):
            own.fast("submit", "tasks:app", "mail", "--key", f"m{number}", "--arg", "to=ada")
        until(lambda: [row["waiting"] for row in own.fast_json("limits")] == [1], "one waits")
    purge(own, "{names.rate_prefix}*")
    (row,) = own.fast_json("limits")
    assert (row["value"], row["n"], row["in_use"], row["waiting"]) == ("ada", None, 0, 1)
    purge(own, "{names.runs_prefix}*")
    assert re.search(r"rate +mail \([0-9a-f]{32}\) +\? in 3600 s +0 +1 ", own.fast("limits")[0])


def purge(own: Cli, subjects: str) -> None:
    async def main() -> None:
        async with App(own.namespace, config=FAST).connect(own.url) as client:
            names = client.stores.names
            await client.stores.conn.api(f"STREAM.PURGE.{names.runs_stream}", {"filter": subjects.format(names=names)})

    asyncio.run(main())
