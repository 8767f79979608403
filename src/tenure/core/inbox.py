"""What becomes of a command of the inbox, by what the core has said of it. Pure.

Every command is acknowledged in the end, and last of all; until then it comes again. What makes that exact: ``core/marks``.
"""

from __future__ import annotations

from typing import Literal

from tenure.core import commands as c
from tenure.core.outcomes import Why

Fate = Literal["applied", "kept", "live", "crowded"]
"""``applied``: its mark is to be forgotten later; ``kept``: nothing was to be done; ``live``: rejected; ``crowded``: it has to wait."""


def expects_nothing(command: c.Submit | c.Replace | c.Cancel) -> bool:
    """Whether its first try has read nothing, and so need not look whether its message is still stored; nor need later ones read.

    A submit expects that there is no such key: a mark that is forgotten was in a record, whose key leaves a trace for an hour.
    """
    return isinstance(command, c.Submit)


def fate_of(command: c.Submit | c.Replace | c.Cancel, why: Why | None) -> Fate:
    """What became of it. ``why`` it was refused; None: it is stored."""
    if why is None or why is Why.ALREADY:
        return "applied"
    if why is Why.CROWDED:
        return "crowded"
    return "live" if why is Why.LIVE and may_be_rejected(command) else "kept"


def is_told_on_a_read(command: c.Submit | c.Replace | c.Cancel, why: Why) -> bool:
    """Whether nothing is written for it because of what was read: a submit has met in its CAS what it joins."""
    return isinstance(command, c.Cancel) and fate_of(command, why) == "kept"


def may_be_rejected(command: c.Submit | c.Replace | c.Cancel) -> bool:
    """Whether the key's record may be why it is rejected, by the first who has it in hand."""
    return isinstance(command, c.Submit) and command.if_live == "reject"


def was_cut_off(why: Why) -> bool:
    """Whether a delivery before this one may have ended between the write and what the record owes."""
    return why in {Why.ALREADY, Why.STOPPING}
