# ruff: noqa: INP001  (a script, not a package)
"""Print the protocol's state table and diagram as Markdown, made from ``tenure.core.transitions.NEXT``.

With ``--write`` they replace the section between the two markers in ``src/tenure/ARCHITECTURE.md``; a unit test fails
if it differs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tenure.core.outcomes import Why
from tenure.core.records import TERMINAL, Phase
from tenure.core.transitions import NEXT, Next

PAGE = Path(__file__).resolve().parents[1] / "src" / "tenure" / "ARCHITECTURE.md"
BEGIN, END = "<!-- state-table:begin -->", "<!-- state-table:end -->"
COLUMNS: tuple[Phase | None, ...] = (None, *Phase)


def cell(results: tuple[Next, ...]) -> str:
    """Phases in bold (``gone``: the record is purged), then refusals."""
    phases = [f"**{result.value if result else 'gone'}**" for result in results if not isinstance(result, Why)]
    refusals = [result.value for result in results if isinstance(result, Why)]
    return "<br>".join(part for part in (", ".join(phases), ", ".join(refusals)) if part)


def table() -> str:
    """One row a command, one column a phase."""
    names = [phase.value if phase else "(no record)" for phase in COLUMNS]
    rows = [["command \\ phase", *names], ["---"] * (len(COLUMNS) + 1)]
    rows += [[f"`{command.__name__}`", *(cell(row[phase]) for phase in COLUMNS)] for command, row in NEXT.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def diagram() -> str:
    """Mermaid: an arrow for each pair of phases, labelled with the commands that lead there; none within a phase."""
    arrows: dict[tuple[Phase | None, Phase | None], list[str]] = {}
    for command, row in NEXT.items():
        for phase in COLUMNS:
            for result in row[phase]:
                if not isinstance(result, Why) and result is not phase:
                    arrows.setdefault((phase, result), []).append(command.__name__)
    ends = [f"    {phase.value} --> [*]: expiry" for phase in Phase if phase in TERMINAL]
    lines = [
        f"    {start.value if start else '[*]'} --> {end.value if end else '[*]'}: {', '.join(commands)}"
        for (start, end), commands in arrows.items()
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, *ends, "```"])


def section() -> str:
    """Return what belongs between the markers, markers included."""
    legend = (
        "Made by `python scripts/state_table.py --write` from `NEXT` in `core/transitions.py`: for each command, and the\n"
        "phase that it meets, the phases that it may lead to (bold) and the reasons for which it may be refused."
    )
    return f"{BEGIN}\n\n{legend}\n\n{table()}\n\n{diagram()}\n\n{END}"


def main(arguments: list[str]) -> int:
    """Print the section, or write it into its page; 1 if the page lacks the markers."""
    if "--write" not in arguments:
        sys.stdout.write(section() + "\n")
        return 0
    return 0 if put(PAGE, BEGIN, section(), END) else 1


def put(where: Path, begin: str, section: str, end: str) -> bool:
    """Put a section between its markers (which it holds) in a page; False if the page lacks them."""
    page = where.read_text(encoding="utf-8")
    parts = re.split(f"{re.escape(begin)}.*?{re.escape(end)}", page, flags=re.DOTALL)
    if len(parts) != 2:  # noqa: PLR2004  (what is before the section, and what is after it)
        sys.stderr.write(f"{where.name} needs the markers {begin} and {end}, once each\n")
        return False
    where.write_text(section.join(parts), encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
