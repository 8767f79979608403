"""Guards of large payloads: what a run has stays, whoever stores it once more."""

from __future__ import annotations

from tests.mutants.guard import REAL, STORE, Guard

_FILE = "src/tenure/nats/blobs.py"
_TESTS = f"{STORE}test_blob_faults.py::"

BLOBS = (
    Guard(
        "blobs: what is there is not stored once more",
        _FILE,
        "            if there is not None and same and self._stays(there):\n",
        "            if False:\n",
        (f"{_TESTS}test_storing_the_same_again_changes_nothing",),
    ),
    Guard(
        "blobs: what is there is not replaced by something else",
        _FILE,
        "            if same is False:",
        "            if False:",
        (f"{_TESTS}test_storing_something_else_under_its_name_does_not_touch_what_a_run_has",),
    ),
    Guard(
        "blobs: what is there is not taken for something else",
        _FILE,
        "        if info.digest == _digest(data):\n",
        "        if True:\n",
        (f"{_TESTS}test_storing_something_else_under_its_name_does_not_touch_what_a_run_has",),
    ),
    Guard(
        "blobs: a name without chunks is not relied upon",
        _FILE,
        "        if info.deleted or await self.last_at(self._parts(info.nuid), patience) is None:",
        "        if info.deleted:",
        (f"{_TESTS}test_a_name_without_chunks_is_stored_anew",),
    ),
    Guard(
        "blobs: what is about to go is stored anew",
        _FILE,
        "self._conn.config.blob_grace_seconds / 2\n",
        "self._conn.config.blob_grace_seconds * 2\n",
        (f"{_TESTS}test_a_blob_that_might_go_before_its_command_is_applied_is_stored_anew",),
    ),
    Guard(
        "blobs: a name is written over what was seen only",
        _FILE,
        'EXPECT: str(0 if there is None else there.seq), "Nats-Rollup": "sub"}',
        '"Nats-Rollup": "sub"}',
        (f"{_TESTS}test_of_two_that_store_one_blob_both_may_be_read_and_nothing_is_left",),
    ),
    Guard(
        "blobs: chunks that may be named are not removed",
        _FILE,
        "            if not unsure:  # else it may be mine that is there, and its chunks are named\n",
        "            if True:\n",
        (f"{_TESTS}test_a_blob_whose_answer_was_lost_can_be_read",),
    ),
    Guard(
        "blobs: chunks that are not named are removed",
        _FILE,
        "            if not unsure:  # else it may be mine that is there, and its chunks are named\n",
        "            if False:\n",
        (f"{_TESTS}test_of_two_that_store_one_blob_both_may_be_read_and_nothing_is_left",),
    ),
    Guard(
        "blobs: nobody waits for ever for chunks that are gone",
        _FILE,
        "                if isinstance(error, TimeoutError) and await self._is_hollow(blob.name):\n",
        "                if False:\n",
        (f"{_TESTS}test_a_blob_without_its_chunks_is_gone",),
    ),
    Guard(
        "blobs: one answer of a cluster does not make a blob gone",
        _FILE,
        "(_SURE_SECONDS if self._conn.is_clustered else 0.0)",
        "0.0",
        (f"{_TESTS}test_in_a_cluster_a_blob_is_not_gone_because_one_answer_says_so",),
    ),
    Guard(
        "blobs: a removal does not take what was stored anew",
        _FILE,
        '"seq": blob.sequence + 1}',
        '"seq": blob.sequence + 9}',
        (f"{REAL}test_blob_expiry.py::test_a_blob_that_was_stored_anew_survives_the_removal_of_the_old_one",),
    ),
)
