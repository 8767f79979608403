"""Guards of fires and bodies: what a deploy leaves of a fire that waits, and when a body may start, and has ended."""

from __future__ import annotations

from tests.mutants.guard import CORE, Guard, unit

_CHAINS = "test_chains.py::"

BODIES = (
    Guard(
        "schedule: a fire that waits is not lost by a deploy",
        CORE + "chains.py",
        "    if record.attempt or record.due <= now:\n        return _goes_on(record, command, now)\n",
        "",
        unit(_CHAINS + "test_a_fire_that_waits_while_code_is_deployed_is_not_lost"),
    ),
    Guard(
        "schedule: a fire that has failed once is not lost by a deploy",
        CORE + "chains.py",
        "    if record.attempt or record.due <= now:",
        "    if record.due <= now:",
        unit(_CHAINS + "test_a_fire_that_waits_while_code_is_deployed_is_not_lost"),
    ),
    Guard(
        "schedule: what was triggered before a deploy goes before the next fire of the newer schedule",
        CORE + "chains.py",
        "    tick = record.tick if is_same else min(record.tick, now)\n",
        "    tick = record.tick\n",
        unit(_CHAINS + "test_a_fire_that_waits_while_code_is_deployed_is_not_lost"),
    ),
    Guard(
        "schedule: what was triggered before a deploy does not repeat the last fire",
        CORE + "chains.py",
        "    tick = record.tick if is_same else min(record.tick, now)\n",
        "    tick = min(record.tick, now)\n",
        unit(_CHAINS + "test_a_trigger_before_a_deploy_does_not_repeat_the_last_fire"),
    ),
)
