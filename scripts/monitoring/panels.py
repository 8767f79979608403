"""The dashboard's panels, row by row."""

from __future__ import annotations

from typing import NamedTuple

WIDE, _HALF, _THIRD = 24, 12, 8


class Panel(NamedTuple):
    """A picture: ``queries`` are (expression, legend)."""

    title: str
    text: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "ops"
    width: int = _HALF
    kind: str = "timeseries"


def _rate(metric: str, by: str, where: str = "") -> str:
    """By the dashboard's choice of actors or queues."""
    one = "queue" if "queue" in by else "actor" if "actor" in by else ""
    matchers = ", ".join(part for part in (f'{one}=~"${one}"' if one else "", where) if part)
    return f"sum by ({by}) (rate({metric}{{{matchers}}}[$__rate_interval]))"


def _share(metric: str) -> str:
    outcomes = "tenure_outcomes_total", "actor", 'outcome=~"succeeded|rescheduled|failed"'
    ended = (
        f"{_rate('tenure_superseded_total', 'actor')} + {_rate('tenure_cancelled_total', 'actor')} + {_rate(*outcomes)}"
    )
    return f"{_rate(metric, 'actor')} / ({ended} > 0)"


def _quantile(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', f'le, {by}')})"


ROWS: dict[str, tuple[Panel, ...]] = {
    "Refused and ended: what must not write did not": (
        Panel(
            "Superseded, by actor and where",
            "Stale copies of a run that were refused: at the head check (its body never started), at the tail (its outcome was "
            "not stored), or when it wanted a retry or a successor. Each run is counted once.",
            ((_rate("tenure_superseded_total", "actor, where"), "{{actor}} {{where}}"),),
        ),
        Panel(
            "Cancelled, by actor and where",
            "Runs that ended cancelled: while they waited, while they ran, or forced because the body ignored its stop.",
            ((_rate("tenure_cancelled_total", "actor, where"), "{{actor}} {{where}}"),),
        ),
        Panel(
            "Fenced, by actor",
            "Outcomes refused because another attempt held the run by then: a worker was silent for longer than its session.",
            ((_rate("tenure_fenced_total", "actor"), "{{actor}}"),),
        ),
        Panel(
            "Share of superseded and cancelled",
            "How much of the work is thrown away: by actor, of all runs that came to an end.",
            (
                (_share("tenure_superseded_total"), "{{actor}} superseded"),
                (_share("tenure_cancelled_total"), "{{actor}} cancelled"),
            ),
            unit="percentunit",
        ),
    ),
    "Work": (
        Panel(
            "Outcomes",
            "Stored, by what they were.",
            ((_rate("tenure_outcomes_total", "actor, outcome"), "{{actor}} {{outcome}}"),),
        ),
        Panel(
            "Head checks",
            "What became of wake-ups when a worker looked at their run: won is a start.",
            ((_rate("tenure_claims_total", "outcome", 'actor=~"$actor"'), "{{outcome}}"),),
        ),
        Panel(
            "Time in bodies",
            "Half of the runs are faster than p50, 95 of 100 faster than p95.",
            (
                (_quantile(0.5, "tenure_run_seconds", "actor"), "{{actor}} p50"),
                (_quantile(0.95, "tenure_run_seconds", "actor"), "{{actor}} p95"),
            ),
            unit="s",
        ),
        Panel(
            "Bodies",
            "Running now, and those that ignore their stop past their grace.",
            (
                ('sum by (actor) (tenure_runs_in_progress{actor=~"$actor"})', "{{actor}} running"),
                ('sum by (actor) (tenure_runs_stuck{actor=~"$actor"})', "{{actor}} stuck"),
            ),
            unit="short",
        ),
    ),
    "Queues": (
        Panel(
            "Waiting",
            "Wake-ups stored and not delivered; every worker of a queue sees the same ones. Without a worker: as supervisors see it.",
            (
                ('max by (queue) (tenure_wakeups_pending{queue=~"$queue"})', "{{queue}}"),
                ('max by (queue) (tenure_wakeups_unserved{queue=~"$queue"})', "{{queue}} without a worker"),
            ),
            unit="short",
            width=_THIRD,
        ),
        Panel(
            "From ready to claimed, p95",
            "How long runs wait for a worker.",
            ((_quantile(0.95, "tenure_queue_wait_seconds", "queue"), "{{queue}}"),),
            unit="s",
            width=_THIRD,
        ),
        Panel(
            "From due to claimed, p95",
            "How late delayed runs, retries and schedules start.",
            ((_quantile(0.95, "tenure_start_lateness_seconds", "queue"), "{{queue}}"),),
            unit="s",
            width=_THIRD,
        ),
    ),
    "Recovery": (
        Panel(
            "Takeovers",
            "Runs taken over from sessions that were closed: their worker is gone.",
            ((_rate("tenure_takeovers_total", "actor"), "{{actor}}"),),
        ),
        Panel(
            "Repairs", "What supervisors found undone and did.", ((_rate("tenure_repairs_total", "kind"), "{{kind}}"),)
        ),
        Panel(
            "Since the last whole sweep",
            "Of the supervisor that swept last. Without sweeps nothing is repaired and no dead worker's run is taken over.",
            (
                ("time() - max(tenure_last_sweep_timestamp_seconds)", "since the last"),
                ("max(tenure_sweep_seconds)", "took"),
            ),
            unit="s",
            width=_THIRD,
        ),
        Panel(
            "Records",
            "That the last whole sweep passed.",
            (("max(tenure_swept_records)", "records"),),
            unit="short",
            width=_THIRD,
        ),
        Panel(
            "Trust left in sessions",
            "Seconds for which a process may go on by itself, when it was scraped. At nought its bodies are stopped.",
            (
                (
                    "tenure_session_trusted_until_timestamp_seconds - timestamp(tenure_session_trusted_until_timestamp_seconds)",
                    "{{job}} {{instance}}",
                ),
            ),
            unit="s",
            width=_THIRD,
        ),
    ),
    "Inbox and inside": (
        Panel(
            "Commands of the inbox",
            "By what became of them.",
            ((_rate("tenure_commands_total", "kind, outcome"), "{{kind}} {{outcome}}"),),
        ),
        Panel("Commands refused", "By reason.", ((_rate("tenure_commands_rejected_total", "reason"), "{{reason}}"),)),
        Panel(
            "Compare-and-swaps refused",
            "Somebody else wrote first, and it was decided again: many mean a contended key, limit or rate.",
            ((_rate("tenure_cas_conflicts_total", "operation"), "{{operation}}"),),
        ),
        Panel(
            "Unexpected errors",
            "`server`: not reached in time. The others are defects or lost sessions.",
            ((_rate("tenure_errors_total", "where"), "{{where}}"),),
        ),
        Panel(
            "Processes that are scraped",
            "By job, and by version.",
            (
                ('sum by (job) (up{job=~"tenure-.*"})', "{{job}}"),
                ("count by (version) (tenure_build_info)", "version {{version}}"),
            ),
            unit="short",
            width=WIDE,
        ),
    ),
    "Producers": (
        Panel(
            "Calls",
            "Of programs that show `client.metrics.registry`: what came of their calls.",
            ((_rate("tenure_client_calls_total", "call, outcome"), "{{call}} {{outcome}}"),),
        ),
        Panel(
            "Time of a call, p95",
            "From the call to its answer.",
            ((_quantile(0.95, "tenure_client_call_seconds", "call"), "{{call}}"),),
            unit="s",
        ),
    ),
}
