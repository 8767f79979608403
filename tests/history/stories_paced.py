"""Hand-made histories of rates, switches, debounces and cooldowns. A window has two seconds and two starts."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.history.evidence import COOLED, SETTLE_SECONDS, SETTLED, AskLine, BoardSeen, Fault, RateSeen, SwitchSeen
from tests.history.stories import Story
from tests.history.stories_added import ran

RATE = "nap=2000000us"


def started(*starts: float, marks: tuple[tuple[float, tuple[float, ...]], ...], frozen: float = 0.0) -> Story:
    """Bodies that start so, and writes of their rate's entry: when each was stored, and the marks in it."""
    story = Story()
    for number, at in enumerate(starts):
        ran(story, f"k{number}", at, at + 0.1)
    story.evidence.bodies[:] = [
        replace(line, rate=RATE) if line.what == "start" else line for line in story.evidence.bodies
    ]
    story.evidence.rates = [
        RateSeen(seq=100 + number, name=RATE, stored=stored, n=2, marks=tuple((mark, 1) for mark in said))
        for number, (stored, said) in enumerate(marks)
    ]
    if frozen:
        story.evidence.frozen = [Fault(kind="freeze", target="worker0", at=1.0, until=frozen, pid=1)]
    return story


def two_in_a_window() -> Story:
    marks = ((1.0, (1.1,)), (1.2, (1.1, 1.3)), (3.15, (1.3, 3.25)))
    return started(1.05, 1.25, 3.2, marks=marks)


def late_by_a_freeze() -> Story:
    """Its mark is over, and nobody may blame the entry: it was frozen between its last look and its body."""
    return started(1.05, 6.0, marks=((1.0, (1.1,)), (1.2, (1.1, 1.3)), (4.0, (4.1,))), frozen=5.99)


def mark_that_was_moved() -> Story:
    return started(2.4, marks=((1.0, (1.1,)), (2.0, (2.5,))))


def mark_that_passed_when_nobody_saw_it() -> Story:
    """The write without it was found in the history, which does not say when it was stored."""
    return started(1.05, 9.0, marks=((1.0, (1.1,)), (0.0, (9.1,))))


def nobody_knows_of_the_entry() -> Story:
    story = started(1.05, marks=())
    story.evidence.missing = 1
    return story


def switched(story: Story, *boards: tuple[float, tuple[str, ...]], until: float = 0.0, kind: str = "actor") -> Story:
    """The boards that were stored, each with the ids that are on it: all of actor ``nap``, or of keys ``k*``."""
    about: dict[str, Any] = {"name": "nap"} if kind == "actor" else {"pattern": "k*"}
    story.evidence.boards = [
        BoardSeen(
            seq=200 + number,
            stored=stored,
            switches=tuple(SwitchSeen(id=one, kind=kind, until=until, **about) for one in ids),
        )
        for number, (stored, ids) in enumerate(boards)
    ]
    return story


def run_at(at: float) -> Story:
    return ran(Story(), "k", at, at + 0.5)


def starts_before_it_knows() -> Story:
    return switched(run_at(12.0), (10.0, ("a",)))


def starts_when_it_is_resumed() -> Story:
    return switched(run_at(30.0), (10.0, ("a",)), (29.9, ()))


def starts_when_its_time_is_over() -> Story:
    return switched(run_at(30.0), (10.0, ("a",)), until=29.9)


def paused_anew() -> Story:
    return switched(run_at(30.0), (10.0, ("a",)), (20.0, ()), (28.0, ("b",)))


def resumed_when_nobody_saw_it() -> Story:
    """The board that no longer has it was found in the history: it may have been stored before the body started."""
    return switched(run_at(30.0), (10.0, ("a",)), (0.0, ()))


def another_is_paused() -> Story:
    story = switched(run_at(30.0), (10.0, ("a",)))
    story.evidence.boards = [
        BoardSeen(seq=200, stored=10.0, switches=(SwitchSeen(id="a", kind="queue", name="nap"),)),
    ]
    return story


def submitted(story: Story, key: str, told: str, asked: float, number: str) -> None:
    """A submit that is answered in a moment."""
    story.evidence.asks.append(
        AskLine(
            asked=asked,
            wall=asked + 0.01,
            ask="submit",
            key=key,
            told=told,
            run_id=story.newest.run_id,
            generation=story.newest.generation,
            id=number,
            mode="keep",
        )
    )


def settled(*asks: float, claimed: float, said: int = -1, triggered: float = 0.0) -> Story:
    """One run of submits at these times, claimed at ``claimed`` with the argument of one of them; maybe triggered before."""
    story = Story()
    for number, at in enumerate(asks):
        if number:
            story.write(stored=at)
        else:
            story.submit(actor=SETTLED, stored=at, since=at, due=at + SETTLE_SECONDS if triggered else 0.0)
        submitted(story, "k", "kept" if number else "accepted", at, str(number))
    if triggered:
        story.write(stored=triggered, due=0.0)
    story.claim(at=claimed, stored=claimed)
    story.end(claimed + 0.1)
    story.finish(at=claimed + 0.1, stored=claimed + 0.1)
    said = range(len(asks))[said]
    story.evidence.bodies[:] = [replace(line, said=str(said)) for line in story.evidence.bodies]
    return story


def triggered_with_the_last_argument() -> Story:
    return settled(1.0, 2.0, claimed=2.2, triggered=2.1)


def triggered_with_an_older_argument() -> Story:
    return settled(1.0, 2.0, claimed=2.2, triggered=2.1, said=0)


def waits_for_the_last() -> Story:
    return settled(1.0, 2.0, 3.0, claimed=4.5)


def waits_no_longer_than_it_may() -> Story:
    return settled(1.0, 2.0, 3.0, 4.0, 4.9, claimed=5.0)


def taken_in_or_not() -> Story:
    """Nobody knows what came of the second submit; had it been stored, it would be this run's."""
    story = settled(1.0, claimed=3.5)
    submitted(story, "k", "unknown", 2.0, "lost")
    story.evidence.asks_whole = True
    return story


def cooled(*, born: float, told: str = "", asked: float = 0.0, stored: float = 2.0) -> Story:
    """A run that ended at 2.0, an answer that keeps it, and the next run; ``stored``: when its outcome was."""
    story = Story()
    story.submit(actor=COOLED, stored=0.5)
    story.claim(at=1.0, stored=1.0)
    story.end(2.0)
    story.finish(at=2.0, stored=stored)
    if told:
        submitted(story, "k", told, asked, "kept")
    if born:
        last = story.newest.last
        story.submit("r2", 2, actor=COOLED, stored=born, last=last)
        submitted(story, "k", "accepted", born - 0.005, "next")
        story.claim(at=born + 0.1, stored=born + 0.1)
        story.end(born + 0.2)
        story.finish(at=born + 0.2, stored=born + 0.2)
    return story


def kept_while_it_cools() -> Story:
    return cooled(born=4.1, told="kept", asked=3.5)


def kept_while_its_outcome_is_not_stored() -> Story:
    """The server was away when its body ended: until it is back the run is live, and who submits is told of it."""
    return cooled(born=6.2, told="kept", asked=5.0, stored=6.0)


# -- what must be found ----------------------------------------------------------------------------------------------


def three_in_a_window() -> Story:
    """The mark of the first was forgotten when half of its window was over."""
    return started(1.05, 1.25, 2.2, marks=((1.0, (1.1,)), (1.2, (1.1, 1.3)), (2.15, (1.3, 2.25))))


def start_that_nobody_wrote_down() -> Story:
    return started(1.05, 1.06, marks=((1.0, (1.1,)),))


def start_before_it_was_written_down() -> Story:
    return started(1.05, marks=((1.5, (1.6,)),))


def later_than_its_mark() -> Story:
    """Its mark should have been moved."""
    return started(6.0, marks=((1.0, (1.1,)),))


def an_entry_that_says_too_much() -> Story:
    return started(marks=((1.0, (1.1, 1.2, 1.3)),))


def starts_though_it_is_paused() -> Story:
    return switched(run_at(30.0), (10.0, ("a",)))


def starts_though_it_is_paused_still() -> Story:
    return switched(run_at(30.0), (10.0, ("a",)), (15.0, ("a", "b")), (40.0, ()))


def starts_though_its_key_is_blocked() -> Story:
    return switched(run_at(30.0), (10.0, ("a",)), kind="keys")


def starts_before_the_end_of_its_pause() -> Story:
    return switched(run_at(30.0), (10.0, ("a",)), until=31.0)


def does_not_wait_for_the_last() -> Story:
    return settled(1.0, 2.0, claimed=2.6)


def does_not_wait_at_all() -> Story:
    return settled(1.0, claimed=1.1)


def runs_with_an_older_argument() -> Story:
    return settled(1.0, 2.0, claimed=3.6, said=0)


def started_while_it_cools() -> Story:
    return cooled(born=3.9)


def held_off_too_long() -> Story:
    return cooled(born=0.0, told="kept", asked=4.5)


GOOD_PACED = [
    two_in_a_window,
    late_by_a_freeze,
    mark_that_was_moved,
    mark_that_passed_when_nobody_saw_it,
    nobody_knows_of_the_entry,
    starts_before_it_knows,
    starts_when_it_is_resumed,
    starts_when_its_time_is_over,
    paused_anew,
    resumed_when_nobody_saw_it,
    another_is_paused,
    triggered_with_the_last_argument,
    waits_for_the_last,
    waits_no_longer_than_it_may,
    taken_in_or_not,
    kept_while_it_cools,
    kept_while_its_outcome_is_not_stored,
]
BAD_PACED = {
    three_in_a_window: "rates hold",
    start_that_nobody_wrote_down: "rates hold",
    start_before_it_was_written_down: "rates hold",
    later_than_its_mark: "rates hold",
    an_entry_that_says_too_much: "rates hold",
    starts_though_it_is_paused: "switches hold",
    starts_though_it_is_paused_still: "switches hold",
    starts_though_its_key_is_blocked: "switches hold",
    starts_before_the_end_of_its_pause: "switches hold",
    does_not_wait_for_the_last: "settles",
    does_not_wait_at_all: "settles",
    runs_with_an_older_argument: "settles",
    triggered_with_an_older_argument: "settles",
    started_while_it_cools: "cools down",
    held_off_too_long: "cools down",
}
