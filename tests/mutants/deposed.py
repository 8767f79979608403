"""Guards against a leader that was deposed and does not know it yet: what it does not show is not gone, what it shows may be old."""

from __future__ import annotations

from tests.mutants.guard import REAL, STORE, Guard

_INBOX = STORE + "test_inbox.py::test_that_a_command_is_gone_is_believed_of_nobody_who_has_never_had_it"

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
)
