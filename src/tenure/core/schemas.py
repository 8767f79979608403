"""Which schema a record says: no more than what it holds needs, so that older processes go on with all others."""

from __future__ import annotations

from tenure.core.records import (
    HOOKS_SCHEMA,
    LIMITS_SCHEMA,
    PLAIN_SCHEMA,
    SCHEDULE_SCHEMA,
    SCHEMA,
    Death,
    Entry,
    Policy,
    Task,
)


def schema_for(task: Task, outbox: tuple[Entry, ...] = (), history: tuple[Death, ...] = ()) -> int:
    """The schema that a record of this task, and with this to carry, needs."""
    needed = max(_schema_of(task.policy), HOOKS_SCHEMA if history else PLAIN_SCHEMA)
    for entry in outbox:
        needed = max(needed, _schema_of(entry.task.policy), HOOKS_SCHEMA if entry.dead else PLAIN_SCHEMA)
    return needed


def _schema_of(policy: Policy) -> int:
    if policy.pace is not None:
        return SCHEMA
    scheduled = policy.cron or policy.autostart or policy.catch_up != "none"
    own = LIMITS_SCHEMA if policy.limits else SCHEDULE_SCHEMA if scheduled else PLAIN_SCHEMA
    if policy.hooks is None:
        return own
    passed_on = (*policy.hooks.success, *policy.hooks.failure, *policy.hooks.cancel)
    return max(own, HOOKS_SCHEMA, *(_schema_of(hook.task.policy) for hook in passed_on))
