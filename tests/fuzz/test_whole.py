"""A few batches of what ``make fuzz`` publishes for as long as it is told to."""

from __future__ import annotations

from tenure.core.subjects import Names
from tests.fuzz.whole import KINDS, bear_all, messages
from tests.support import sized


def test_whatever_is_published_a_worker_and_a_supervisor_go_on(nats_server: str, namespace: str) -> None:
    assert bear_all(nats_server, namespace, batches=sized(5, 200)) == 1 + sized(5, 200)


def test_a_batch_follows_from_its_numbers_and_every_kind_is_about_this_namespace() -> None:
    deeds = [(kind, number) for kind in KINDS for number in range(20)]
    made = messages(Names("docs"), deeds, now=1_790_000_000.0, incarnation="i")
    assert made == messages(Names("docs"), deeds, now=1_790_000_000.0, incarnation="i")
    assert all("docs" in subject for subject, _, _ in made)
    assert len({data for _, data, _ in made}) > len(made) / 3
