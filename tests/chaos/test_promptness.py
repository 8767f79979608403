"""What is said of the runs of a killed worker, by when they went on elsewhere."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenure import Config
from tests.chaos.processes import Child
from tests.chaos.promptness import Crowd, Life, Takeover, check_promptness, lives_of, takeovers
from tests.history.evidence import BoardSeen, Death, Fault, SwitchSeen
from tests.history.known import Known
from tests.history.stories import Story

CONFIG = Config(session_ttl_seconds=3.0, ack_wait_seconds=6.0)
KILLED = 1.5
ALLOWED = 4.25
WELL = [Life(name=f"{role}1", role=role, since=0.0, until=math.inf) for role in ("worker", "supervisor")]
ELSEWHERE = Fault(kind="kill", target="supervisor1", at=1.0, until=2.0)
FROZEN = Fault(kind="freeze", target="worker1", at=1.0, until=5.0)


def killed(*, on: float = math.inf) -> Story:
    """Killed in its body, which starts again elsewhere, if it does."""
    story = Story()
    story.submit()
    story.claim("s1", at=1.0)
    story.died(1, KILLED)
    story.evidence.deaths = [replace(death, name="worker0") for death in story.evidence.deaths]
    if on < math.inf:
        story.claim("s2", at=on)
    return story


def taken(story: Story, *faults: Fault, config: Config = CONFIG, lives: list[Life] | None = None) -> list[Takeover]:
    return list(takeovers(Known(story.evidence), list(faults), WELL if lives is None else lives, config, Crowd()))


def late(story: Story, *faults: Fault) -> bool:
    return bool(list(check_promptness(taken(story, *faults))))


@pytest.mark.parametrize(("seconds", "found"), [(ALLOWED - 0.01, False), (ALLOWED + 0.01, True), (math.inf, True)])
def test_a_run_goes_on_within_the_ttl_and_a_moment(seconds: float, found: bool) -> None:
    assert late(killed(on=KILLED + seconds)) is found


def test_the_default_settings_allow_less_than_eight_seconds_and_thirteen_where_streams_have_replicas() -> None:
    bounds = [taken(killed(on=2.0), config=config)[0].bound for config in (Config(), Config(replicas=3))]
    assert bounds == [6.25, 13.25]


def test_each_other_service_that_is_hurt_adds_a_delivery() -> None:
    story = killed(on=KILLED + ALLOWED + 5.9)
    assert late(story)
    assert not late(story, ELSEWHERE)
    assert late(story, replace(ELSEWHERE, kind="child kill")), "no service"
    assert late(story, replace(ELSEWHERE, target="producer1")), "nothing of it is needed"
    assert late(story, replace(ELSEWHERE, target="worker0")), "the one that was killed"
    assert late(story, replace(ELSEWHERE, at=50.0, until=51.0)), "after it"
    assert late(story, replace(ELSEWHERE, at=KILLED + ALLOWED + 0.1, until=51.0)), "when it should have been over"
    assert late(story, replace(ELSEWHERE, at=-9.0, until=-8.0)), "long before"


def test_a_worker_that_is_hurt_matters_where_it_may_have_been_given_the_wake_up() -> None:
    story = killed(on=KILLED + ALLOWED + 5.9)
    assert not late(story, FROZEN)
    assert not late(story, replace(FROZEN, kind="kill", at=5.0))
    assert late(story, replace(FROZEN, until=3.5)), "well again before the session could be closed"
    assert late(story, replace(FROZEN, kind="kill")), "its pulls went with its connection"
    assert late(story, replace(FROZEN, at=-5.0)), "its pulls had expired"


def test_nothing_is_said_where_servers_are_hurt() -> None:
    assert not late(killed(on=30.0), Fault(kind="server kill", target="server", at=1.0, until=2.0))


def test_what_was_cancelled_or_replaced_does_not_go_on() -> None:
    story = killed()
    story.write(phase="stopping")
    assert not taken(story)
    story = killed()
    story.replaced()
    assert not taken(story)


def test_what_waits_by_design_is_not_judged() -> None:
    story = killed(on=30.0)
    story.evidence.bodies = [replace(line, limit="solo", allowed=1) for line in story.evidence.bodies]
    assert not taken(story)
    story = killed(on=30.0)
    switch = SwitchSeen(id="1", kind="actor", name="nap")
    story.evidence.boards = [BoardSeen(seq=1, stored=3.0, switches=(switch,)), BoardSeen(seq=2, stored=4.0)]
    assert not taken(story)
    story.evidence.boards = [replace(story.evidence.boards[0], switches=(replace(switch, name="tick"),))]
    assert late(story)


def test_a_body_in_a_child_process_that_ended_before_is_nobodys_to_take_over() -> None:
    story = killed(on=30.0)
    story.evidence.bodies = [replace(line, child=7) for line in story.evidence.bodies]
    assert not taken(story)
    story.evidence.bodies.append(replace(story.evidence.bodies[0], what="beat", at=KILLED - 0.1))
    assert late(story)


def test_a_void_body_has_its_successor_before_the_kill() -> None:
    """Frozen and fenced, then killed."""
    story = killed(on=1.2)
    assert not taken(story)


@pytest.mark.parametrize("role", ["worker", "supervisor"])
def test_time_in_which_nobody_is_there_to_take_over_does_not_count(role: str) -> None:
    story = killed(on=KILLED + 9.0)
    lives = [replace(life, since=KILLED + 5.0) if life.role == role else life for life in WELL]
    (one,) = taken(story, lives=lives)
    assert one.seconds == pytest.approx(4.0)
    assert one.waited == pytest.approx(9.0)
    own = Life(name="worker0", role=role, since=0.0, until=math.inf)
    assert taken(story, lives=[*lives, own])[0].seconds == pytest.approx(4.0), "the one that was killed"


def test_a_service_is_well_from_when_it_is_ready_until_it_is_hurt(tmp_path: Path) -> None:
    child = Child("worker0", [], tmp_path)
    child.ready_at = [1.0, 20.0]
    death = Death(pid=1, role="worker", name="worker0", how="kill", killed_at=10.0, at=10.0, wall=10.0)
    child.deaths = [death, replace(death, how="term", killed_at=30.0, asked_at=30.0, at=33.0)]
    faults = [
        Fault(kind="freeze", target="worker0", at=2.0, until=4.0),
        Fault(kind="cut", target="worker0", at=5.0, until=6.0),
        Fault(kind="cut", target="worker1", at=7.0, until=8.0),
    ]
    lives = list(lives_of(child, faults, beside=True))
    seen = [(1.0, 2.0), (4.0, 5.0), (6.0, 10.0), (20.0, 30.0)]
    for role in ("worker", "supervisor"):
        assert [(life.since, life.until) for life in lives if life.role == role] == seen
