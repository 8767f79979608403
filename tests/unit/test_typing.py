"""What a type checker sees: arguments and result types come through, with and without a context, plain and async."""

from __future__ import annotations

from pathlib import Path

import mypy.api

SNIPPET = """
from tenure import App, Client, Context

app = App("typed")

@app.actor
async def one(ctx: Context, path: str, depth: int = 1) -> dict[str, int]:
    return {path: depth}

@app.actor(timeout=3.0)
def two(number: int) -> str:
    return str(number)

async def use(client: Client, ctx: Context) -> None:
    reveal_type(one.call("a", depth=2))
    reveal_type(await (await client.submit(one.call("a"), key="k")).result())
    reveal_type(await (await client.replace(two.call(3), key="k")).result(timeout=1))
    reveal_type(await one(ctx, "a"))
    reveal_type(two(3))
    one.call(3)
    two.call("x")
    one.call("a", dept=3)
"""


def test_a_type_checker_sees_arguments_and_results(tmp_path: Path) -> None:
    source = tmp_path / "snippet.py"
    source.write_text(SNIPPET)
    out, err, _ = mypy.api.run(["--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), str(source)])
    assert not err
    revealed = [line.partition('"')[2].rstrip('"') for line in out.splitlines() if "Revealed type" in line]
    assert revealed == [
        "tenure.actors.Call[dict[str, int]]",
        "dict[str, int]",
        "str",
        "dict[str, int]",
        "str",
    ], out
    errors = [line for line in out.splitlines() if "error:" in line]
    assert len(errors) == 3, out
