"""Guards against a leader that was deposed and does not know it yet: what it does not show is not gone, what it shows may be old."""

from __future__ import annotations

from tests.mutants.guard import REAL, STORE, Guard

_INBOX = STORE + "test_inbox.py::test_that_a_command_is_gone_is_believed_of_nobody_who_has_never_had_it"
_DEAD = (
    STORE + "test_dead_faults.py::test_that_there_is_no_letter_is_not_believed_at_once_of_who_shows_no_marker_either"
)

DEPOSED = (
    Guard(
        "deposed: that a command is gone is believed of who has had it",
        "src/tenure/nats/inbox.py",
        "            if place.sequence == 0 or code == NO_STREAM or (code == NO_MESSAGE and had):\n",
        "            if place.sequence == 0 or code in {NO_MESSAGE, NO_STREAM}:\n",
        (_INBOX,),
    ),
    Guard(
        "deposed: who has counted so far is asked once more whether it shows the command",
        "src/tenure/nats/inbox.py",
        "                if had:  # this one is asked: between the two answers another may have become the leader\n"
        "                    continue\n",
        "                if had:\n                    return False\n",
        (_INBOX,),
    ),
    Guard(
        "deposed: a command that the inbox does not show is not acknowledged",
        "src/tenure/supervisor/commands.py",
        "        return result if stored else None\n",
        "        return result\n",
        (REAL + "test_inbox_crashes.py::test_what_the_inbox_does_not_show_is_not_acknowledged",),
    ),
    Guard(
        "deposed: a replay that has started nothing removes no letter",
        "src/tenure/dead.py",
        "        if not there:  # nothing was started, so nothing is removed\n",
        "        if False:\n",
        (REAL + "test_scenarios_dead_replay.py::test_a_replay_that_does_not_find_its_letter_again_removes_none",),
    ),
    Guard(
        "deposed: a replay asks again for a letter of which there is no marker",
        "src/tenure/nats/dead.py",
        "            if found is not None or not await patience.pause():\n",
        "            if True:\n",
        (_DEAD, REAL + "test_scenarios_dead_replay.py::test_a_replay_that_does_not_find_its_letter_again_removes_none"),
    ),
    Guard(
        "deposed: a supervisor asks again for a replayed letter of which there is no marker",
        "src/tenure/nats/dead.py",
        "        while await self._next(wanted, 1, patience) is None and await patience.pause():\n",
        "        while False:\n",
        (_DEAD,),
    ),
)
