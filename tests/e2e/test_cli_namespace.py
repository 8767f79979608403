"""Commands about a key without ``--namespace``: about the only namespace there is, or told which there are."""

from __future__ import annotations

from pathlib import Path

from tenure.testing import nats_server
from tests.e2e.commands import Cli


def test_the_only_namespace_needs_no_name_and_of_several_each_is_told(tmp_path: Path) -> None:
    """Scripts and people alike: a guess among several would cancel somebody else's run."""
    with nats_server() as url:
        cli = Cli(tmp_path, url, "only")
        cli.namespace = ""
        assert "there is no namespace on nats://" in cli.fast("show", "k", code=2)[1]
        cli.fast("submit", "tasks:app", "say", "--key", "k", "--arg", "text=x", "--delay", "1h")
        assert cli.fast_json("show", "k")["phase"] == "scheduled"
        assert "not over after 0.1 s" in cli.fast("result", "k", "--timeout", "100ms", code=3)[1]
        assert "say which namespace" in cli.fast("cancel", "--pattern", "k*", code=2)[1]
        assert cli.fast_json("cancel", "k")["outcome"] == "cancelled"
        assert "cancelled" in cli.fast("watch", "k", code=1)[0]
        cli.fast("setup", "--namespace", "another_WORK")
        for command in (["show", "k"], ["cancel", "k"], ["result", "k"], ["watch", "k"]):
            told = cli.fast(*command, code=2)[1]
            assert "say which namespace: --namespace NAME" in told
            assert told.endswith("has another_WORK, only\n")
        assert cli.fast_json("show", "k", "--namespace", "only")["phase"] == "cancelled"
