"""What ``tenure bench`` says: every figure with its goal, its ratio to what the server itself can do, and a verdict."""

from __future__ import annotations

import math
import os
import platform
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from tenure.cli.bench_stage import Account
from tenure.cli.bench_work import Figures, Series


class Figure(Struct, frozen=True, kw_only=True):
    """One line of the table.

    ``goal`` is to be kept, ``aim`` is what we want; ``raw`` names the figure that it is divided by.
    """

    name: str
    text: str
    unit: str
    digits: int = 2
    more_is_better: bool = False
    goal: float | None = None
    aim: float | None = None
    raw: str | None = None

    def kept(self, value: float, bound: float) -> bool:
        """Whether ``value`` is on the right side of ``bound``."""
        return value >= bound if self.more_is_better else value <= bound

    def verdict(self, value: float) -> str:
        """Against goal and aim."""
        if math.isnan(value):
            return "not measured here"
        if self.goal is not None and not self.kept(value, self.goal):
            return "missed"
        if self.aim is not None:
            return "aim met" if self.kept(value, self.aim) else ("goal met" if self.goal is not None else "aim missed")
        return "goal met" if self.goal is not None else ""


def _rate(name: str, text: str, goal: float | None = None, aim: float | None = None, raw: str | None = None) -> Figure:
    return Figure(name=name, text=text, unit="/s", digits=0, more_is_better=True, goal=goal, aim=aim, raw=raw)


def _time(name: str, text: str, goal: float | None = None, aim: float | None = None, raw: str | None = None) -> Figure:
    return Figure(name=name, text=text, unit="ms", goal=goal, aim=aim, raw=raw)


def _share(name: str, text: str) -> Figure:
    return Figure(name=name, text=text, unit="", more_is_better=True, goal=0.7)


def _cpu(name: str, text: str, aim: float | None = None) -> Figure:
    return Figure(name=name, text=text, unit="s", digits=3, aim=aim, raw="raw_cpu_s")


FIGURES = (
    _rate("raw_cas_per_s", "raw: CAS, 100 in flight"),
    _rate("raw_publish_per_s", "raw: publish, 100 in flight"),
    _time("raw_cas_p50_ms", "raw: CAS, one by one, p50"),
    _time("raw_paused_p50_ms", "raw: CAS after a pause of 0 to 30 ms, p50"),
    _cpu("raw_cpu_s", "raw: CPU of 1,000 CAS, client and server"),
    _rate("submit_per_s", "submit, 100 awaited in flight", goal=10_000, aim=12_000, raw="raw_cas_per_s"),
    _rate("submit_many_per_s", "submit_many", aim=20_000, raw="raw_cas_per_s"),
    _time("submit_p50_ms", "submit, one by one, p50", aim=0.45, raw="raw_cas_p50_ms"),
    _time("submit_p99_ms", "submit, one by one, p99", raw="raw_cas_p50_ms"),
    _rate("drain_per_s", "drain no-op tasks, one worker process", goal=6_000, aim=10_000, raw="raw_cas_per_s"),
    _cpu("cpu_client_s", "CPU of 1,000 tasks: client, submit"),
    _cpu("cpu_server_enqueue_s", "CPU of 1,000 tasks: server, submit"),
    _cpu("cpu_worker_s", "CPU of 1,000 tasks: worker, drain"),
    _cpu("cpu_server_drain_s", "CPU of 1,000 tasks: server, drain"),
    _cpu("cpu_total_s", "CPU of 1,000 tasks: all", aim=0.35),
    _rate("limited_per_s", "drain no-op tasks under Limit(10)", raw="drain_per_s"),
    _share("limited_share", "drain under Limit(10): share of the plain drain"),
    _rate("rated_per_s", "drain no-op tasks under a RateLimit that is never full", raw="drain_per_s"),
    _share("rated_share", "drain under a RateLimit: share of the plain drain"),
    _rate("shared_per_s", "drain no-op tasks under Limit(10, per=...), ten values", raw="drain_per_s"),
    _share("shared_share", "drain under Limit(10, per=...): share of the plain drain"),
    _rate("rated_shared_per_s", "drain no-op tasks under a RateLimit(..., per=...), ten values", raw="drain_per_s"),
    _share("rated_shared_share", "drain under a RateLimit(..., per=...): share of the plain drain"),
    _rate("full_per_s", "drain no-op tasks under RateLimit(300, 0.1), full all the time"),
    Figure(
        name="full_share",
        text="drain under a full RateLimit: share of what it allows",
        unit="",
        more_is_better=True,
        aim=0.9,
    ),
    _rate("inbox_per_s", "inbox: commands applied by one supervisor", goal=3_000, raw="raw_cas_per_s"),
    _cpu("cpu_inbox_s", "CPU of 1,000 commands: supervisor"),
    _time("result_p50_ms", "submit to result, idle worker, p50", goal=1.5, aim=1.2, raw="raw_cas_p50_ms"),
    _time("result_p99_ms", "submit to result, idle worker, p99", aim=4.0, raw="raw_cas_p50_ms"),
    _time("result_paused_p50_ms", "submit to result, after a pause of 0 to 30 ms, p50", raw="raw_paused_p50_ms"),
    _time("result_paused_p99_ms", "submit to result, after a pause of 0 to 30 ms, p99", raw="raw_paused_p50_ms"),
    _time("late_spread_p50_ms", "delayed start, spread out: lateness p50", goal=3.0),
    _time("late_spread_p99_ms", "delayed start, spread out: lateness p99", goal=10.0),
    _time("late_burst_p50_ms", "delayed start, all at one instant: lateness p50", goal=25.0, aim=15.0),
    _time("late_burst_p99_ms", "delayed start, all at one instant: lateness p99", goal=60.0, aim=40.0),
    Figure(name="idle_rss_mb", text="idle worker: resident memory", unit="MB", digits=1, goal=60.0),
    Figure(name="idle_cpu_percent", text="idle worker: CPU", unit="%", goal=1.0),
    Figure(
        name="supervisor_ready_s",
        text="100,000 live records: a supervisor, from its start to ready",
        unit="s",
        goal=10.0,
    ),
    Figure(
        name="sweeping_cpu_percent",
        text="100,000 live records: CPU of a supervisor that passes over them, pauses included",
        unit="%",
        goal=25.0,
    ),
    Figure(name="sweep_cpu_s", text="100,000 live records: CPU of one pass", unit="s"),
    Figure(
        name="scheduled_cpu_percent",
        text="100,000 scheduled keys: CPU of a supervisor at rest, a pass each quarter of an hour included",
        unit="%",
        goal=1.0,
    ),
    Figure(name="long_worker_cpu_percent", text="1,000 long runs: CPU of the worker", unit="%", goal=3.0),
    Figure(name="long_server_cpu_percent", text="1,000 long runs: CPU of the server", unit="%"),
    Figure(
        name="memory_growth_mb",
        text="a long life: growth of memory after the first tenth",
        unit="MB",
        digits=1,
        goal=10.0,
    ),
)


class Report(Struct, frozen=True, kw_only=True):
    """Everything measured. ``samples``: for each figure its value in each repeat."""

    quick: bool
    server: str
    samples: dict[str, list[float]]
    series: Series
    account: Account
    seconds: float

    @classmethod
    def of(cls, repeats: list[Figures], **rest: Any) -> Report:
        """From one dictionary of figures a repeat."""
        samples: dict[str, list[float]] = {}
        for figures in repeats:
            for name, value in figures.items():
                samples.setdefault(name, []).append(value)
        return cls(samples=samples, **rest)

    def value(self, name: str) -> float:
        """The median over the repeats."""
        return median(self.samples[name])

    def ratio(self, figure: Figure) -> float | None:
        """To the raw figure of the same run; None where there is none to compare with."""
        return (
            None
            if figure.raw is None or figure.raw == figure.name
            else self.value(figure.name) / self.value(figure.raw)
        )

    @property
    def missed(self) -> list[str]:
        """The figures whose goal was missed, by name; what was not measured is not among them."""
        return [figure.name for figure in FIGURES if figure.verdict(self.value(figure.name)) == "missed"]

    @property
    def machine(self) -> dict[str, Any]:
        """Where it ran."""
        from tenure import __version__

        return {
            "cores": os.cpu_count(),
            "machine": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "nats_server": self.server,
            "tenure": __version__,
        }

    def as_json(self) -> str:
        """One JSON object with every sample."""
        figures = {
            figure.name: {
                "what": figure.text,
                "unit": figure.unit,
                "median": self.value(figure.name),
                "samples": self.samples[figure.name],
                "goal": figure.goal,
                "aim": figure.aim,
                "ratio_to_raw": self.ratio(figure),
                "raw": figure.raw,
                "verdict": figure.verdict(self.value(figure.name)),
            }
            for figure in FIGURES
        }
        return msgspec.json.encode(
            {
                "machine": self.machine,
                "quick": self.quick,
                "seconds": self.seconds,
                "figures": figures,
                "series": self.series,
                "account": self.account,
                "balanced": self.account.balanced,
            }
        ).decode()

    def show(self, console: Console) -> None:
        """The table, and what it was measured on."""
        table = Table(title="tenure bench" + (" --quick: too small to judge by" if self.quick else ""))
        table.add_column("figure")
        for heading in ("median", "from - to", "goal", "aim", "x raw"):
            table.add_column(heading, justify="right")
        table.add_column("verdict")
        for figure in FIGURES:
            value, samples, ratio = self.value(figure.name), self.samples[figure.name], self.ratio(figure)
            verdict = figure.verdict(value)
            table.add_row(
                figure.text,
                f"{value:,.{figure.digits}f} {figure.unit}",
                f"{min(samples):,.{figure.digits}f} - {max(samples):,.{figure.digits}f}" if len(samples) > 1 else _ONCE,
                _bound(figure, figure.goal),
                _bound(figure, figure.aim),
                "" if ratio is None else f"{ratio:.2f}",
                f"[{_COLOURS.get(verdict, 'default')}]{verdict}",
            )
        console.print(table)
        console.print(
            ", ".join(f"{name} {value}" for name, value in self.machine.items()), f"- took {self.seconds:.0f} s"
        )
        account = self.account
        console.print(
            f"{account.submitted:,} tasks submitted, {account.finished:,} with an outcome, {account.outcomes:,} outcomes stored: "
            + ("[green]nothing lost, nothing doubled" if account.balanced else "[red]THIS DOES NOT ADD UP")
        )
        for line in account.wrong:
            console.print(f"[red]{line}")


_ONCE = "one sample"
_COLOURS = {"goal met": "green", "aim met": "green", "missed": "red", "aim missed": "yellow"}


def _bound(figure: Figure, bound: float | None) -> str:
    return "" if bound is None else f"{'>=' if figure.more_is_better else '<='} {bound:,g}"
