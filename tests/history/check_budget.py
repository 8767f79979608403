"""What a run may fail: each failure is counted once, and the run fails for good when its budget is spent, neither sooner nor later.

Counted are bodies that raise, attempts that others end past their time, and those whose worker is lost. What is snoozed or handed
back is not, nor what a session leaves behind that was closed by its own process in good order.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.evidence import Revision, Violation
from tests.history.known import Held, Known

_DRAINED = "drain"
_COUNTED = {"raise": 1, "snooze": 0}
"""How many failures a body adds that ends so, and whose run is put back for it."""


def check_budget(known: Known) -> Iterator[Violation]:
    """Everything that can be seen of it."""
    hows = {(line.session, line.run_id, line.attempt): line.how for line in known.evidence.bodies if line.what == "end"}
    drained = {session.id for session in known.evidence.sessions if session.closed == _DRAINED}
    for key, past in known.pasts.items():
        for _, before, after in past.steps():
            if before is None or after.gone or not before.budget:
                continue
            for what in (*_counted(known, hows, drained, before, after), *_spent(before, after)):
                yield Violation("budget", key, f"{before.run_id} {what}, at revision {after.seq}")


def _counted(
    known: Known, hows: dict[Held, str], drained: set[str], before: Revision, after: Revision
) -> Iterator[str]:
    if before.run_id != after.run_id:
        return
    more = after.failures - before.failures
    holder, following = before.held(), after.held()
    if more and (holder is None or holder == following or more != 1):
        yield f"had {before.failures} failures, and has {after.failures} by no attempt"
    elif holder is not None and following not in {None, holder}:
        wanted = {0, 1} if holder[0] not in known.closed_at else {int(holder[0] not in drained)}
        if more not in wanted and following is not None and following[0] != holder[0]:
            yield f"was taken over from {holder[0]}, and has {after.failures} failures after {before.failures}"
    elif holder is not None and after.phase == "waiting" and not after.evicted:
        how = hows.get(holder, "")
        if more != _COUNTED.get(how, more):
            yield f"was put back after a {how}, and has {after.failures} failures after {before.failures}"


def _spent(before: Revision, after: Revision) -> Iterator[str]:
    if after.held() not in {None, before.held()} and after.failures >= after.budget:
        yield f"was claimed after {after.failures} failures of {after.budget}"
    last = after.last
    if last is not None and last != before.last and last.phase == "failed" and last.failures < before.budget:
        yield f"failed for good by {last.failures} failures of {before.budget}"
