"""Hand-made histories in which every invariant held."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.aftermath import derived_id
from tests.history.stories import KEY, Story, ran_well


def replaced_while_running(overlap: str = "stop") -> Story:
    story = Story()
    story.submit()
    story.claim(at=1.0)
    story.replaced(deadline=3.0 if overlap == "stop" else None, overlap=overlap)
    return story


def taken_over() -> Story:
    """Killed in its body, its session closed, run again elsewhere."""
    story = Story()
    story.submit()
    story.claim("s1", at=1.0)
    story.died(1, 1.5)
    story.session("s1", 1, "expired", at=4.0)
    story.claim("s2", at=4.1)
    story.end(5.0)
    story.finish(at=5.0)
    return story


def frozen_and_fenced() -> Story:
    """Frozen past its ttl: its body goes on beside the takeover, and its session is closed."""
    story = taken_over()
    story.evidence.deaths.clear()
    return story


def stopped_then_next() -> Story:
    story = replaced_while_running()
    story.end(1.4, how="stop superseded", generation=1, run_id="r1", fence=2)
    story.write(previous=())
    story.claim(at=1.5)
    story.end(1.9)
    story.finish()
    return story


def overstayed() -> Story:
    """Its grace is over: the next generation may run beside it."""
    story = replaced_while_running()
    story.claim("s2", at=3.1, previous=())
    story.end(3.5)
    story.finish(at=3.5)
    return story


def in_parallel() -> Story:
    story = replaced_while_running("parallel")
    story.claim("s2", at=1.1)
    story.end(1.5)
    story.finish(at=1.5)
    story.write(previous=())
    return story


def cancelled_in_its_body() -> Story:
    story = Story()
    story.submit()
    story.claim(at=1.0)
    story.write(phase="stopping", stopped=True)
    story.asked("cancel", "stopping", "r1", 1)
    story.end(1.2, how="stop cancel")
    story.finish("cancelled")
    return story


def perpetual() -> Story:
    """Outcome and successor in one write; then its chain is cancelled."""
    story = Story()
    story.submit(every=True)
    story.claim()
    story.end(1.9)
    story.submit("r2", 2, last=story.last())
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def spawned() -> Story:
    """The outcome holds its child, the child is made, then both forget it."""
    story = Story()
    story.submit()
    story.claim()
    story.end(1.9, spawned=("child",))
    story.finish(outbox=("e",), outbox_keys=("child",))
    story.key = "child"
    story.submit("c1", seen=1)
    story.key = KEY
    story.write(outbox=(), outbox_keys=())
    story.key = "child"
    story.write(seen=0)
    story.claim(at=3.0)
    story.end(3.1)
    story.finish(at=3.1)
    return story


def hooked() -> Story:
    """It failed for good: its letter is kept, and its hook for that is a run of its own."""
    story = Story()
    story.submit(actor="hooked")
    story.claim()
    story.end(1.9, how="raise")
    story.finish("failed")
    story.evidence.letters.append("r1")
    story.key = derived_id("r1", "failed.0")
    story.submit("h1")
    story.claim(at=3.0)
    story.end(3.1)
    story.finish(at=3.1)
    return story


def purged_and_anew() -> Story:
    story = ran_well()
    story.write(gone=True)
    story.submit("r2", last=None)
    story.claim(at=3.0)
    story.end(3.1)
    story.finish(at=3.1)
    return story


GOOD = [
    ran_well,
    taken_over,
    frozen_and_fenced,
    stopped_then_next,
    overstayed,
    in_parallel,
    cancelled_in_its_body,
    perpetual,
    spawned,
    hooked,
    purged_and_anew,
]
