"""Guards of what is encrypted: where a box opens, and what becomes of one that does not."""

from __future__ import annotations

from tests.mutants.guard import CORE, REAL, Guard

_REAL = REAL + "test_encryption.py"
_LOST = REAL + "test_lost_keys.py"
_UNIT = "tests/unit/test_encryption.py"

SEALING = (
    Guard(
        "lost keys: a stop that ends meanwhile is read as blindly as it was begun",
        "src/tenure/unread.py",
        "patience, at=found, blind=True)",
        "patience, at=found)",
        (_LOST + "::test_a_stop_that_its_holder_ends_meanwhile_is_told_as_one",),
    ),
    Guard(
        "lost keys: who may still run is told before the key is forgotten",
        "src/tenure/unread.py",
        '            await stores.sessions.signal(entry.holder(), "superseded", patience)\n',
        "            pass\n",
        (_LOST + "::test_a_body_that_may_still_run_is_told_before_its_key_is_forgotten",),
    ),
    Guard(
        "purge: another run than the one that was meant is not forgotten",
        CORE + "upkeep.py",
        "    if command.run_id and record.run_id != command.run_id:\n        return Refused(Why.SUPERSEDED)\n",
        "",
        (_LOST + "::test_what_is_submitted_after_the_cancel_is_not_forgotten",),
    ),
    Guard(
        "lost keys: a cancel is finished for who went away",
        "src/tenure/afterwards.py",
        "read(key, patience, blind=True)",
        "read(key, patience)",
        (_LOST + "::test_a_body_is_told_also_for_a_caller_that_goes_away_in_the_middle",),
    ),
    Guard(
        "sealing: a box belongs to the key under which it lies, whatever its head says",
        CORE + "sealing.py",
        "        opened = self._open(key_id, box, self._about_record(blank, key), what, key=key, record=blank)\n",
        "        opened = self._open(key_id, box, self._about_record(blank, blank.key), what, key=key, record=blank)\n",
        (_REAL + "::test_a_record_that_is_copied_to_another_key_does_not_open",),
    ),
    Guard(
        "sealing: a box belongs to one generation, run and actor",
        CORE + "sealing.py",
        'self._about("record", key, record.run_id, record.generation, record.task.actor)',
        'self._about("record", key)',
        (_UNIT,),
    ),
    Guard(
        "sealing: a box belongs to one namespace",
        CORE + "sealing.py",
        '_encode((f"tenure.{kind}.1", self._namespace, *which))',
        '_encode((f"tenure.{kind}.1", *which))',
        (_UNIT,),
    ),
    Guard(
        "sealing: which blob holds the arguments is told by the box, not by the head",
        CORE + "sealing.py",
        "args=hidden.args, blob=hidden.blob, policy=policy",
        "args=hidden.args, policy=policy",
        (_UNIT,),
    ),
    Guard(
        "sealing: no nonce is used twice",
        "src/tenure/encryption.py",
        "nonce = os.urandom(_NONCE_BYTES)",
        "nonce = bytes(_NONCE_BYTES)",
        (_UNIT,),
    ),
    Guard(
        "sealing: a task whose key is missing here waits for who has it",
        "src/tenure/worker/head.py",
        '            return Later("encrypted", "", self._stores.config.ack_wait_seconds)\n',
        '            return Drop("finished", None)\n',
        (_REAL + "::test_who_lacks_the_key_hands_the_task_over_to_who_has_it",),
    ),
    Guard(
        "sealing: a dead letter that cannot be read whole is not replayed",
        "src/tenure/dead.py",
        "        if kept[-1].sealed:\n",
        "        if False:\n",
        (_REAL + "::test_a_dead_letter_whose_key_is_missing_is_listed_and_not_replayed",),
    ),
    Guard(
        "sealing: a dead letter counts only where it was stored",
        "src/tenure/nats/dead.py",
        "                    if self._subject(letter) == subject:",
        "                    if True:",
        (_REAL + "::test_a_dead_letter_whose_key_is_missing_is_listed_and_not_replayed",),
    ),
    Guard(
        "sealing: words that quote a publisher are not told in the history",
        "src/tenure/supervisor/told.py",
        "reason if history.hides else ",
        "",
        (_REAL + "::test_what_users_give_is_nowhere_on_the_server",),
    ),
    Guard(
        "sealing: an expired record is over, whoever reads it",
        "src/tenure/nats/runs.py",
        "        if error.record is not None and is_over(error.record, asked):\n",
        "        if False:\n",
        (_REAL + "::test_an_expired_record_is_over_for_who_lacks_its_key_too",),
    ),
    Guard(
        "sealing: a head is whole, else a number on a line of its own is taken for a key's id",
        CORE + "sealing.py",
        '    if not rest or (head and not head.endswith(b"}")):',
        "    if not rest:",
        (_UNIT,),
    ),
    Guard(
        "sealing: no wake-up is made of what is in clear of a record",
        "src/tenure/stores.py",
        "        if found.box:",
        "        if False:",
        (_LOST + "::test_no_wake_up_is_stored_of_a_run_without_its_arguments",),
    ),
    Guard(
        "sealing: a cancel without the key leaves the box as it was",
        CORE + "sealing.py",
        "        if box:\n",
        "        if False:\n",
        (_LOST + "::test_a_run_that_waits_is_cancelled_and_who_has_the_key_sees_all_that_was_stored",),
    ),
    Guard(
        "sealing: a cancelled run has no outcome of an older one",
        CORE + "sealing.py",
        "    if last is not None and last.phase is Phase.CANCELLED:",
        "    if last is None:",
        (_UNIT,),
    ),
    Guard(
        "sealing: a blob that an encrypted dead letter may name stays",
        "src/tenure/supervisor/blobs.py",
        "                if kept.sealed or blob.name",
        "                if blob.name",
        (_LOST + "::test_a_blob_stays_that_a_dead_letter_may_name_which_cannot_be_read",),
    ),
    Guard(
        "sealing: a blob that a newer Tenure's dead letter may name stays",
        "src/tenure/supervisor/blobs.py",
        "key=blob.key, strict=True)",
        "key=blob.key)",
        (_LOST + "::test_a_blob_stays_that_a_dead_letter_may_name_which_cannot_be_read",),
    ),
    Guard(
        "sealing: a run whose arguments cannot be read may be blocked, and is woken for who can",
        "src/tenure/supervisor/places.py",
        "        except EncryptedRecord:",
        "        except ZeroDivisionError:",
        (_LOST + "::test_whose_arguments_cannot_be_read_may_be_blocked_for_all_that_is_known",),
    ),
    Guard(
        "sealing: a run whose arguments only another process can read is not started past a block",
        "src/tenure/switchboard.py",
        "                if isinstance(error, EncryptedRecord) and self._stores.codec.lacks(error.key_id):\n",
        "                if False:\n",
        (_LOST + "::test_whose_arguments_cannot_be_read_may_be_blocked_for_all_that_is_known",),
    ),
)
