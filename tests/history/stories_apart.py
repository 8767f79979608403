"""Hand-made histories of bodies in child processes, which are killed beside their worker, or with it."""

from __future__ import annotations

from tests.history.stories import Story


def _killed_in_its_child(*, until: float) -> Story:
    """The child of the first attempt is killed, and beats until then; the second attempt is the same worker's."""
    story = Story()
    story.submit()
    story.claim("s1", at=1.0, body=False)
    story.start(1.0, child=11)
    story.start(until, child=11, what="beat")
    story.write(phase="waiting", holder=None)
    story.claim("s1", at=1.5, body=False)
    story.start(1.5, child=12)
    story.start(1.6, child=12, what="beat")
    story.end(1.9, child=12)
    story.finish()
    return story


def killed_in_its_child() -> Story:
    return _killed_in_its_child(until=1.3)


def lived_on_beside_the_next_attempt() -> Story:
    """Said to be dead, and it beats on."""
    return _killed_in_its_child(until=1.6)


def gone_with_its_worker() -> Story:
    story = Story()
    story.submit()
    story.claim("s1", at=1.0, body=False)
    story.start(1.0, child=11)
    story.start(1.4, child=11, what="beat")
    story.died(1, 1.5)
    story.session("s1", 1, "expired", at=4.0)
    story.claim("s2", at=4.1)
    story.end(5.0)
    story.finish(at=5.0)
    return story


def left_behind_by_its_worker() -> Story:
    """Nothing of it is stored: its worker was all it had. But it goes on with whatever its body does outside."""
    story = gone_with_its_worker()
    claim = next(revision for revision in story.evidence.revisions if revision.holder is not None)
    story.start(1.6, child=11, what="beat", session="s1", pid=1, attempt=1, fence=claim.seq)
    return story


GOOD_APART = [killed_in_its_child, gone_with_its_worker]
BAD_APART = {
    lived_on_beside_the_next_attempt: "no two bodies",
    left_behind_by_its_worker: "ends with its worker",
}
