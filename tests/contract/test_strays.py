"""Wake-ups that their consumer takes for acknowledged: found by sequence, removed once, by whoever comes first."""

from __future__ import annotations

import pytest

from tenure.clock import SYSTEM
from tenure.nats.patience import Patience
from tenure.nats.strays import Stray, Strays
from tenure.stores import Stores


def patience() -> Patience:
    return Patience(SYSTEM, 1.0)


async def test_without_consumers_and_with_a_backlog_there_is_none(stores: Stores) -> None:
    strays = Strays(stores.conn, stores.names)
    assert await strays.find(10, patience()) == set()
    await stores.work.ensure_consumer("default", "normal")
    for number in range(3):
        await stores.conn.put(stores.names.work("default", "normal", f"k{number}", "r"), b"")
    assert await strays.find(10, patience()) == set()


@pytest.mark.parametrize("which", [0, 1, 2], ids=["first", "between others", "last"])
async def test_one_that_is_gone_already_is_nothing_to_wait_for(stores: Stores, which: int) -> None:
    """It was at the head of the stream, in a gap, or the last: the server has another word for each."""
    strays = Strays(stores.conn, stores.names)
    subjects = [stores.names.work("default", "normal", f"k{number}", "r") for number in range(3)]
    sequences = [(await stores.conn.put(subject, b"")).seq for subject in subjects]
    stray = Stray(subjects[which], sequences[which])
    assert await strays.remove(stray, patience())
    assert not await strays.remove(stray, patience())
