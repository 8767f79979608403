"""What Prometheus keeps and tells, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple


class Recording(NamedTuple):
    """A series that Prometheus keeps: what alerts and long views ask for again and again."""

    name: str
    expr: str


class Alert(NamedTuple):
    """When to tell somebody; what it means and what to do first are the runbook's."""

    name: str
    expr: str
    wait: str
    severity: str
    summary: str
    meaning: str
    action: str


def _five(metric: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{where}[5m]))"


RECORDINGS = (
    Recording("actor_where:tenure_superseded:rate5m", _five("tenure_superseded_total", "actor, where")),
    Recording("actor_where:tenure_cancelled:rate5m", _five("tenure_cancelled_total", "actor, where")),
    Recording("actor:tenure_fenced:rate5m", _five("tenure_fenced_total", "actor")),
    Recording("actor_outcome:tenure_outcomes:rate5m", _five("tenure_outcomes_total", "actor, outcome")),
    Recording(
        "actor:tenure_failed:ratio_rate5m",
        'sum by (actor) (actor_outcome:tenure_outcomes:rate5m{outcome="failed"}) / '
        '(sum by (actor) (actor_outcome:tenure_outcomes:rate5m{outcome=~"succeeded|rescheduled|failed"}) > 0)',
    ),
    Recording(
        "actor:tenure_superseded:ratio_rate5m",
        "sum by (actor) (actor_where:tenure_superseded:rate5m) / (sum by (actor) (actor_where:tenure_superseded:rate5m) + "
        "sum by (actor) (actor_where:tenure_cancelled:rate5m) + "
        'sum by (actor) (actor_outcome:tenure_outcomes:rate5m{outcome=~"succeeded|rescheduled|failed"}) > 0)',
    ),
    Recording(
        "actor:tenure_run_seconds:p95_5m",
        f"histogram_quantile(0.95, {_five('tenure_run_seconds_bucket', 'le, actor')})",
    ),
    Recording("queue:tenure_wakeups_pending:max", "max by (queue) (tenure_wakeups_pending)"),
    Recording("queue:tenure_claims:rate5m", _five("tenure_queue_wait_seconds_count", "queue")),
    Recording(
        "queue:tenure_queue_wait_seconds:p95_5m",
        f"histogram_quantile(0.95, {_five('tenure_queue_wait_seconds_bucket', 'le, queue')})",
    ),
    Recording(
        "queue:tenure_start_lateness_seconds:p95_5m",
        f"histogram_quantile(0.95, {_five('tenure_start_lateness_seconds_bucket', 'le, queue')})",
    ),
    Recording(
        "instance:tenure_session_trust_seconds",
        "tenure_session_trusted_until_timestamp_seconds - timestamp(tenure_session_trusted_until_timestamp_seconds)",
    ),
)

ALERTS = (
    Alert(
        "TenureNoSupervisor",
        "(time() - max(tenure_last_sweep_timestamp_seconds) > 120) or absent(tenure_last_sweep_timestamp_seconds)",
        "2m",
        "critical",
        "No supervisor has swept all keys for two minutes",
        (
            "Nobody closes dead sessions, repairs what crashes left or applies the inbox. Work that runs goes on; what "
            "a worker that dies now held waits. (Also where nothing of Tenure is scraped at all, and while one sweep "
            "takes longer than two minutes.)"
        ),
        (
            "Look whether a supervisor runs, and at its `/ready`, which says what it lacks; start one (`tenure "
            "supervisor module:app`), best two on different hosts. If it is ready, look at *Since the last whole "
            "sweep*: a sweep that takes that long needs more than `sweep_records_per_second`; raise the alert's bound "
            "if that is meant."
        ),
    ),
    Alert(
        "TenureProcessDown",
        'up{job=~"tenure-.*"} == 0',
        "2m",
        "warning",
        "{{ $labels.job }} {{ $labels.instance }} cannot be scraped",
        "The process has ended, is frozen, or its port is not reached.",
        (
            "Ask its `/health` on its own host; look at the end of its log and its exit code (deploy/README.md has the "
            "codes)."
        ),
    ),
    Alert(
        "TenureSessionNotTrusted",
        "instance:tenure_session_trust_seconds < 0",
        "1m",
        "critical",
        "{{ $labels.instance }} has had no trusted session for a minute",
        (
            "The process cannot renew its session: it does not reach the NATS server, or its clock and that of "
            "Prometheus differ by more than a session's ttl. It takes no work, and its bodies were stopped."
        ),
        (
            "If all processes say so, it is the server: look at its log, its disk and its JetStream state. If one does, "
            "look at that host's network and clock."
        ),
    ),
    Alert(
        "TenureQueueStalled",
        "queue:tenure_wakeups_pending:max > 0 and queue:tenure_claims:rate5m == 0",
        "10m",
        "critical",
        "{{ $value }} wake-ups of {{ $labels.queue }} wait, and none is claimed",
        (
            "Work waits and nobody starts any: all slots are taken by long bodies, the queue or its actors are paused, "
            "or the workers of the queue are not ready."
        ),
        (
            "Is it paused (`tenure resume QUEUE`)? Are *Bodies* as many as the workers' `--concurrency`: add workers, "
            "or lower timeouts. Else ask the workers' `/ready`."
        ),
    ),
    Alert(
        "TenureNoWorker",
        "absent(tenure_wakeups_pending)",
        "5m",
        "critical",
        "No worker tells how much waits",
        (
            "No worker is scraped: what is submitted waits. The other alerts about queues are silent then, since only workers "
            "tell of queues. (Also while all workers start or have lost the server, and where Tenure has none on purpose.)"
        ),
        (
            "`tenure doctor` says how many workers are alive and which queue waits for one; start one (`tenure worker "
            "module:app --queue QUEUE`). If some are alive, Prometheus does not reach them: look at its targets."
        ),
    ),
    Alert(
        "TenureQueueWithoutWorker",
        "max by (queue) (tenure_wakeups_unserved) > 0",
        "5m",
        "critical",
        "{{ $value }} wake-ups of {{ $labels.queue }} wait, and no worker works on that queue",
        (
            "Workers tell of their own queues alone; supervisors see that runs wait in one that no live worker has. Its runs "
            "wait until one comes. (`other`: queues that the supervisors' code does not know.)"
        ),
        (
            "`tenure queues` names the queue and how much waits; start a worker for it (`tenure worker module:app --queue "
            "QUEUE`), or add it to the `--queue` of those there are. Was it mistyped at a submit, or renamed in the code: "
            "`tenure cancel --pattern` ends what nobody is to run, `tenure pause QUEUE` says that it is to wait."
        ),
    ),
    Alert(
        "TenureQueueSlow",
        "queue:tenure_queue_wait_seconds:p95_5m > 30",
        "10m",
        "warning",
        "Runs of {{ $labels.queue }} wait {{ $value | humanizeDuration }} (p95) for a worker",
        "More is asked for than the workers do.",
        (
            "Add workers or concurrency. See in *Time in bodies* whether an actor has become slow, in *Head checks* "
            "whether runs are only passed on (`busy`, `parked`, `not_due`, `unknown_actor`: a limit, or code that is "
            "not deployed)."
        ),
    ),
    Alert(
        "TenureStartsLate",
        "queue:tenure_start_lateness_seconds:p95_5m > 10",
        "10m",
        "warning",
        "Delayed runs of {{ $labels.queue }} start {{ $value | humanizeDuration }} late (p95)",
        "Delays, retries and schedules of this queue start later than they should.",
        "As TenureQueueSlow; if nothing waits there, compare the clocks of the workers' hosts with the NATS server's.",
    ),
    Alert(
        "TenureFenced",
        "sum by (actor) (increase(tenure_fenced_total[10m])) > 0",
        "0m",
        "warning",
        "{{ $value | humanize }} outcomes of {{ $labels.actor }} were refused: another attempt held the run",
        (
            "A worker was silent for longer than its session lives (frozen, swapped out, cut off), its run was taken "
            "over, and the old body still came to an end. Nothing was stored twice; effects outside of Tenure may have "
            "happened twice."
        ),
        (
            "Find `run.fenced` in the logs: it names key and attempt. Look why that host stood still (CPU, memory, a "
            "suspended machine). Use `ctx.fence` where the body writes elsewhere."
        ),
    ),
    Alert(
        "TenureTakeovers",
        "sum by (actor) (increase(tenure_takeovers_total[15m])) > 5",
        "0m",
        "warning",
        "{{ $value | humanize }} runs of {{ $labels.actor }} were taken over within 15 minutes",
        "Workers die or lose their sessions, and their runs start again elsewhere.",
        (
            "Look for workers that are killed (out of memory?) or restarted without a drain, and for sessions that a "
            "supervisor closed (its repairs of kind `session`). A run that kills each worker it meets ends as failed "
            "after `max_attempts`: see `tenure dead ls`."
        ),
    ),
    Alert(
        "TenureFailing",
        "actor:tenure_failed:ratio_rate5m > 0.1",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the runs of {{ $labels.actor }} fail for good",
        "More than one run in ten used up its attempts, or said that another would not help.",
        "`tenure dead ls` and `tenure dead show` tell the error; when its cause is gone, `tenure dead replay`.",
    ),
    Alert(
        "TenureWorkWasted",
        "actor:tenure_superseded:ratio_rate5m > 0.5",
        "15m",
        "warning",
        "{{ $value | humanizePercentage }} of the runs of {{ $labels.actor }} are superseded",
        "Its keys are replaced faster than their runs end. The newest always wins, but most work is thrown away.",
        'Replace with a delay, give the actor a `Debounce`, or submit with `if_live="keep"`.',
    ),
    Alert(
        "TenureRunsStuck",
        "sum by (actor, instance) (tenure_runs_stuck) > 0",
        "5m",
        "warning",
        "{{ $value }} bodies of {{ $labels.actor }} on {{ $labels.instance }} ignore their stop",
        (
            "They were told to stop, their grace is over, and they go on. They take memory, and beyond `stuck_limit` "
            "the worker takes no work."
        ),
        (
            'Let the body end at `ctx.stopping`, call `ctx.check()` in a plain `def`, or use `isolation="process"`, '
            "which can be killed. Restart the worker to be rid of them now."
        ),
    ),
    Alert(
        "TenureForcedCancels",
        'sum by (actor) (increase(tenure_cancelled_total{where="forced"}[15m])) > 0',
        "0m",
        "info",
        "{{ $value | humanize }} cancels of {{ $labels.actor }} were forced",
        "The runs count as cancelled; their bodies did not obey within their grace.",
        "As TenureRunsStuck; a longer `grace` helps where bodies only need more time to clean up.",
    ),
    Alert(
        "TenureServerErrors",
        'sum by (instance) (increase(tenure_errors_total{where="server"}[5m])) > 0',
        "10m",
        "warning",
        "{{ $labels.instance }} keeps giving up requests to the NATS server",
        (
            "The server is slow, changes its leader again and again, or does not answer. Nothing is lost: what was "
            "given up is tried again."
        ),
        "Look at the server: disk latency, memory, leader changes, `max_bytes` of the streams.",
    ),
    Alert(
        "TenureInternalErrors",
        'sum by (instance, where) (increase(tenure_errors_total{where=~"handler|keeper|command"}[10m])) > 0',
        "0m",
        "warning",
        "{{ $labels.instance }}: unexpected errors in {{ $labels.where }}",
        (
            "A defect of Tenure itself, or what somebody else wrote into its buckets. The process goes on; with too "
            "many a minute it ends."
        ),
        (
            "Find `*.crashed` in its log, with a traceback and the key; report it. `tenure show KEY` tells how the key "
            "stands."
        ),
    ),
    Alert(
        "TenureRepairsFrequent",
        'sum by (kind) (rate(tenure_repairs_total{kind=~"wakeup|signal|outbox|stray|place|reserved"}[15m])) > 0.1',
        "15m",
        "warning",
        'Supervisors keep repairing: {{ $labels.kind }}, {{ $value | printf "%.2g" }} a second',
        (
            "A few after a crash are as it should be. A steady stream means that messages are lost or processes die in "
            "the middle."
        ),
        (
            "Look for killed processes and errors of the server in the same minutes; if there are none, report it with "
            "the logs of a supervisor."
        ),
    ),
    Alert(
        "TenureCommandsRejected",
        "sum by (reason) (increase(tenure_commands_rejected_total[10m])) > 0",
        "0m",
        "info",
        "{{ $value | humanize }} commands of the inbox were refused: {{ $labels.reason }}",
        "A program publishes what cannot be carried out. Each is kept with its reason.",
        "`tenure dead rejected` shows them in words. `unknown_actor`: no supervisor has the code of that actor.",
    ),
    Alert(
        "TenureContended",
        'sum by (operation) (rate(tenure_cas_conflicts_total{operation!="submit"}[15m])) > 20',
        "15m",
        "info",
        "{{ $value | humanize }} refused compare-and-swaps a second: {{ $labels.operation }}",
        (
            "Many write the same key, limit or rate at once, and most decide again. (A submit that meets a record is "
            "refused once by design.)"
        ),
        "Spread the keys; for `limit` and `rate`, let `per=` split them.",
    ),
)
