"""The protocol: ``transition(record, command, now)`` says what to store, or why nothing may be stored.

Rules, in the order in which they bind (DESIGN: section 4; numbers in brackets are the interleavings that each removes):

1. Only the holder in the record - session, run id *and* attempt - may store an outcome [9]. Everybody else is refused.
2. A ``stopping`` generation has one possible end, ``cancelled``, whatever its body did [1, 2]. Only a newer generation
   may come over it [28].
3. A new generation takes the next number and a new run id, and keeps ``previous``, ``outbox`` and ``seen`` [4, 5, 6];
   the holder that it displaces is appended to ``previous`` with a deadline if the overlap policy tells it to stop.
   Deadlines are never extended.
4. A claim adds one to ``attempt`` in its own write. Under ``stop`` and ``wait`` it needs every entry of ``previous`` to
   be confirmed, under a closed session, or past its deadline. A takeover counts a failure; without budget it writes
   ``failed`` [22]. Under limits a claim also needs a place for this very attempt (``permits``), under rates a start
   (``rates``), for want of which a run that has not begun may be dropped; no switch may hold it back. What is debounced or
   cools down: ``pace``.
5. Outcome and successor are one write; ``last`` keeps the outcome over it [23]. A run that failed for good still has
   its successor. With each outcome goes what it owes: its hooks and, of a run that failed for good, its dead letter; a
   superseded run has neither (``aftermath``).
6. A command names the run it is about; a cancel never hits another run than the one it saw [10]. A command of the inbox
   leaves its mark in ``seen`` with whatever it changes, and is not applied over that [13]; its run id is its own [15].
7. The supervisor that was started last says what the schedule of a key is that started by itself; it takes effect while
   the key waits, so no body is stopped for it.
8. A finished record may expire only when it owes nothing (``records.ttl_of``).

Pure: no clock, no randomness, no I/O. ``NEXT`` states for each command and phase what can come out; the table in
ARCHITECTURE.md is generated from it and a property test holds the code to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.core import chains, claims, endings, generations, upkeep
from tenure.core import commands as c
from tenure.core.errors import IllegalTransition
from tenure.core.outcomes import Why
from tenure.core.parts import Result
from tenure.core.records import Phase, Record

Next = Phase | Why | None
_W, _R, _S, _OK, _F, _C = Phase
_SUPERSEDED_OR = (Why.SUPERSEDED, Why.FENCED, Why.ALREADY)
_TAIL_ELSEWHERE: dict[Phase | None, tuple[Next, ...]] = {
    None: (Why.ABSENT,),
    _W: _SUPERSEDED_OR,
    _OK: _SUPERSEDED_OR,
    _F: _SUPERSEDED_OR,
    _C: _SUPERSEDED_OR,
}
_FENCED_ELSEWHERE = dict.fromkeys((None, _W, _OK, _F, _C), (Why.FENCED,))

NEXT: dict[type, dict[Phase | None, tuple[Next, ...]]] = {
    c.Submit: {
        None: (_W,),
        _W: (_W, Why.ALREADY, Why.LIVE, Why.DIFFERS, Why.CROWDED),
        _R: (_W, _R, Why.ALREADY, Why.LIVE, Why.DIFFERS, Why.CROWDED),
        _S: (_W, Why.ALREADY, Why.CROWDED),
        **{end: (_W, end, Why.ALREADY, Why.CROWDED, Why.COOLING) for end in (_OK, _F)},
        _C: (_W, Why.ALREADY, Why.CROWDED),
    },
    c.Replace: {None: (_W,), **dict.fromkeys((_W, _R, _S, _OK, _F, _C), (_W, Why.ALREADY, Why.CROWDED))},
    c.KeepAlive: {
        None: (_W,),
        _W: (_W, Why.LIVE, Why.DIFFERS, Why.OUTDATED, Why.CROWDED),
        **dict.fromkeys((_R, _S), (Why.LIVE, Why.DIFFERS)),
        **dict.fromkeys((_OK, _F, _C), (_W, Why.OUTDATED, Why.CROWDED)),
    },
    c.Retire: {
        **dict.fromkeys((None, _OK, _F, _C), (Why.NOTHING,)),
        _W: (_C, Why.NOTHING, Why.OUTDATED),
        **dict.fromkeys((_R, _S), (Why.LIVE, Why.NOTHING)),
    },
    c.Trigger: {
        None: (Why.ABSENT,),
        _W: (_W, Why.ALREADY, Why.FINISHED),
        **dict.fromkeys((_R, _S), (Why.LIVE, Why.FINISHED)),
        **dict.fromkeys((_OK, _F, _C), (Why.FINISHED,)),
    },
    c.Cancel: {
        None: (Why.ABSENT,),
        _W: (_C, _W, Why.FINISHED, Why.STOPPING, Why.ALREADY, Why.CROWDED),
        _R: (_S, _R, Why.FINISHED, Why.STOPPING, Why.ALREADY, Why.CROWDED),
        _S: (Why.FINISHED, Why.STOPPING, Why.ALREADY),
        **{end: (end, Why.FINISHED, Why.STOPPING, Why.ALREADY, Why.CROWDED) for end in (_OK, _F)},
        _C: (Why.FINISHED, Why.STOPPING, Why.ALREADY),
    },
    c.Claim: {
        None: (Why.ABSENT,),
        _W: (_R, _C, Why.NOT_DUE, Why.BUSY, Why.HELD, Why.LIMITED, Why.SUPERSEDED),
        _R: (_R, _F, _W, Why.BUSY, Why.HELD, Why.LIMITED, Why.SUPERSEDED),
        _S: (_C, Why.BUSY, Why.SUPERSEDED),
        _OK: (Why.FINISHED, Why.SUPERSEDED),
        _F: (Why.FINISHED, Why.SUPERSEDED),
        _C: (Why.CANCELLED, Why.SUPERSEDED),
    },
    c.Succeed: {**_TAIL_ELSEWHERE, _R: (_OK, _W, *_SUPERSEDED_OR), _S: (_C, *_SUPERSEDED_OR)},
    c.FailAttempt: {**_TAIL_ELSEWHERE, _R: (_F, _W, *_SUPERSEDED_OR), _S: (_C, *_SUPERSEDED_OR)},
    c.SnoozeRun: {**_TAIL_ELSEWHERE, _R: (_W, *_SUPERSEDED_OR), _S: (_C, *_SUPERSEDED_OR)},
    c.HandBack: {**_TAIL_ELSEWHERE, _R: (_W, *_SUPERSEDED_OR), _S: (_C, *_SUPERSEDED_OR)},
    c.Evict: {**_FENCED_ELSEWHERE, _R: (_W, _F, Why.NOT_DUE, Why.FENCED), _S: (_C, Why.NOT_DUE, Why.FENCED)},
    **{
        command: {None: (Why.NOTHING,), **{phase: (phase, Why.NOTHING) for phase in Phase}}
        for command in (c.Confirm, c.ExpirePrevious, c.ClearOutbox, c.ForgetSeen)
    },
    c.TakeCounts: {
        **dict.fromkeys((None, _R, _S, _OK), (Why.NOTHING,)),
        **{phase: (phase, Why.NOTHING) for phase in (_W, _F, _C)},
    },
    c.Purge: {
        None: (Why.ABSENT,),
        _R: (Why.LIVE, Why.SUPERSEDED),
        _S: (Why.LIVE, Why.SUPERSEDED),
        **dict.fromkeys((_W, _OK, _F, _C), (None, Why.OWED, Why.SUPERSEDED)),
    },
}
"""What each command may lead to: a phase, a refusal, or None (no record); by the phase it meets (None: no record)."""


def transition(record: Record | None, command: c.Command, now: float) -> Result:
    """Decide what ``command`` does to ``record`` at time ``now`` (seconds since the epoch).

    Returns a Decision to be stored at exactly the revision that ``record`` was read at, or Refused. Raises
    IllegalTransition for a command that is none of ``NEXT``, or one that names another key than the record's.
    """
    handler = _HANDLERS.get(type(command))
    if handler is None:
        raise IllegalTransition(record.phase if record else "absent", type(command).__name__)
    return handler(record, command, now)


_HANDLERS: dict[type, Callable[[Record | None, Any, float], Result]] = {
    c.Submit: generations.submit,
    c.Replace: generations.supersede,
    c.KeepAlive: chains.keep_alive,
    c.Retire: chains.retire,
    c.Trigger: chains.trigger,
    c.Cancel: generations.cancel,
    c.Claim: claims.claim,
    c.Succeed: endings.succeed,
    c.FailAttempt: endings.fail,
    c.SnoozeRun: endings.snooze,
    c.HandBack: endings.hand_back,
    c.Evict: endings.evict,
    c.Confirm: upkeep.confirm,
    c.ExpirePrevious: upkeep.expire_previous,
    c.ClearOutbox: upkeep.clear_outbox,
    c.ForgetSeen: upkeep.forget_seen,
    c.TakeCounts: upkeep.take_counts,
    c.Purge: upkeep.purge,
}
