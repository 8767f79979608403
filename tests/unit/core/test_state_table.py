"""The state table in ARCHITECTURE.md is the one that the code declares."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "state_table.py"


def test_the_state_table_in_the_architecture_page_is_up_to_date() -> None:
    script = runpy.run_path(str(SCRIPT))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert page.count(script["BEGIN"]) == 1
    assert script["section"]() in page, "run `python scripts/state_table.py --write`"


def test_writing_the_table_changes_nothing_else_and_writing_it_again_nothing_at_all(tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{script['BEGIN']}\nold\n{script['END']}\n\nafter\n", encoding="utf-8")
    script["main"].__globals__["PAGE"] = page
    for _ in range(2):
        assert script["main"](["--write"]) == 0
        assert page.read_text(encoding="utf-8") == f"before\n\n{script['section']()}\n\nafter\n"


def test_a_page_without_the_markers_is_left_alone(tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    page = tmp_path / "page.md"
    page.write_text("nothing here\n", encoding="utf-8")
    script["main"].__globals__["PAGE"] = page
    assert script["main"](["--write"]) == 1
    assert page.read_text(encoding="utf-8") == "nothing here\n"
