"""The kinds of faults that a run may be asked for, by name."""

from __future__ import annotations

CHILD_KILL, CHILD_FREEZE = "child kill", "child freeze"
RESTART, LAME_DUCK = "server restart", "server lame duck"
FIRST = (CHILD_KILL, RESTART, LAME_DUCK)
"""What a run may be asked to begin with."""
ONLY = ("kill", "term", "freeze", "cut", CHILD_KILL, CHILD_FREEZE)
"""What may be done to processes, and to what a run may be held."""
COSTS_NO_COUNT = {"kill", "term", CHILD_KILL, CHILD_FREEZE}
"""No answer to a write gets lost with these, but to a process that is killed."""
