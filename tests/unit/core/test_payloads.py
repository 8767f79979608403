"""Which blobs must stay: every place where something stored can name one."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.dead import letter_of
from tenure.core.payloads import named_by, named_by_letter
from tenure.core.records import Blob, Entry, Hook, Hooks, Policy, Record, Task
from tests.unit.core.histories import RUN, S1, fail, play, submit, succeed


def blob(name: str) -> Blob:
    return Blob(name=name, size=1, digest="d")


def large(name: str) -> Task:
    return Task(actor="actor", blob=blob(name))


def test_a_record_names_its_arguments() -> None:
    record = play(submit()).found
    assert named_by(record) == set()
    assert named_by(replace(record, task=large("args"))) == {"args"}


def test_a_result_is_named_for_as_long_as_it_is_the_latest() -> None:
    command = replace(succeed(S1), result=None, blob=blob("result"))
    done = play(*RUN, command)
    assert named_by(done.found) == {"result"}
    assert named_by(play(submit("r2"), start=done).found) == {"result"}, "kept over a successor"


def test_what_is_owed_to_others_is_named() -> None:
    entry = Entry(id="o1", key="child", run_id="o1-run", task=large("spawned"))
    assert named_by(play(*RUN, succeed(S1, outbox=(entry,))).found) == {"spawned"}


def test_hooks_are_named_inside_each_other() -> None:
    inner = replace(large("inner"), policy=Policy(hooks=Hooks(cancel=(Hook(task=large("innermost")),))))
    hooks = Hooks(success=(Hook(task=large("on success")),), failure=(Hook(task=inner),))
    record = replace(play(submit()).found, task=Task(actor="actor", policy=Policy(hooks=hooks)))
    assert named_by(record) == {"on success", "inner", "innermost"}


def test_a_letter_names_what_its_replay_needs() -> None:
    failed = play(replace(submit(), task=large("args")), *RUN[1:], fail(S1, final=True)).found
    assert named_by(failed) == {"args"}
    letter = letter_of(_debt(failed))
    assert named_by_letter(letter) == {"args"}


def _debt(record: Record) -> Entry:
    return next(entry for entry in record.outbox if entry.dead)
