"""When silence proves that a process is gone, to the moment; each test is red without one of the guards."""

from __future__ import annotations

import pytest

from tenure.core.silence import Silence

OWN = 8.0
"""The ttl of whoever watches: its renewals count as unconfirmed after 4.4 s."""
TICK = 0.125


def at(now: float, silence: Silence, *, took: float = TICK, confirmed_at: float | None = None) -> list[str]:
    """Who may be closed at a tick; None: our own renewals are confirmed all the time."""
    judged = silence.tick(now, took=took, confirmed_at=now if confirmed_at is None else confirmed_at)
    return silence.silent(now) if judged else []


@pytest.fixture
def silence() -> Silence:
    """One that watches since 0 and heard of ``s``, of the same ttl, then."""
    silence = Silence(OWN, 0.0)
    silence.heard("s", OWN, 0.0)
    return silence


def test_who_is_silent_for_its_whole_ttl_is_closed_and_not_a_moment_earlier(silence: Silence) -> None:
    assert at(8.0 - TICK, silence) == []
    assert at(8.0, silence) == ["s"]


def test_every_renewal_begins_anew_and_who_is_closed_is_silent_no_more(silence: Silence) -> None:
    silence.heard("s", OWN, 5.0)
    assert at(13.0 - TICK, silence) == []
    assert at(13.0, silence) == ["s"]
    silence.forget("s")
    assert at(13.0, silence) == []


def test_nobody_is_silent_before_the_longer_one_of_both_ttls_is_over() -> None:
    silence = Silence(OWN, 0.0)
    silence.heard("short", 2.0, 0.0)
    silence.heard("long", 16.0, 0.0)
    assert at(8.0 - TICK, silence) == []
    assert at(8.0, silence) == ["short"]
    assert at(16.0 - TICK, silence) == ["short"]
    assert at(16.0, silence) == ["short", "long"]


# -- cut off -----------------------------------------------------------------------------------------------------------


def test_while_cut_off_nobody_is_silent_and_nothing_is_missing(silence: Silence) -> None:
    silence.cut_off()
    assert at(100.0, silence) == []
    assert not silence.would_have_heard(100.0)


def test_after_a_reconnect_all_clocks_start_anew(silence: Silence) -> None:
    silence.cut_off()
    silence.back(100.0)
    assert at(108.0 - TICK, silence) == []
    assert at(108.0, silence) == ["s"]
    assert not silence.would_have_heard(108.0)
    assert silence.would_have_heard(108.0 + TICK)


# -- frozen or busy ----------------------------------------------------------------------------------------------------


def test_a_tick_that_took_long_judges_nobody_and_does_not_count(silence: Silence) -> None:
    """What was silence before it goes on counting: a machine that is always busy closes the dead too."""
    assert at(7.0, silence) == []
    assert at(9.0, silence, took=2.0) == []
    assert at(10.0 - TICK, silence) == []
    assert at(10.0, silence) == ["s"]
    assert not silence.would_have_heard(10.0)
    assert silence.would_have_heard(10.0 + TICK)


def test_the_silence_that_a_long_tick_ends_is_not_judged(silence: Silence) -> None:
    """A renewal may have come meanwhile that nobody has read yet."""
    silence.heard("old", OWN, -100.0)
    assert at(2.0, silence, took=2.0) == []
    assert at(2.0 + TICK, silence) == ["old"]


def test_a_tick_that_took_a_second_is_not_long(silence: Silence) -> None:
    assert at(8.0, silence, took=1.0) == ["s"]


def test_what_was_heard_during_a_long_tick_was_heard_now_at_the_latest(silence: Silence) -> None:
    silence.heard("s", OWN, 8.0)
    assert at(9.0, silence, took=2.0) == []
    assert at(17.0 - TICK, silence) == []
    assert at(17.0, silence) == ["s"]


# -- own renewals ------------------------------------------------------------------------------------------------------


def test_while_our_own_renewals_are_not_confirmed_the_clocks_stand_still_since_the_last_that_was(
    silence: Silence,
) -> None:
    """The last was sent at 3 and is missed at 7.5; two ticks later the bucket takes them again: 4.75 s do not count."""
    assert at(7.25, silence, confirmed_at=3.0) == []
    for now in (7.5, 7.625, 7.75):
        assert at(now, silence, confirmed_at=3.0) == []
    assert at(12.75 - TICK, silence) == []
    assert not silence.would_have_heard(12.75)
    assert at(12.75, silence) == ["s"]
    assert silence.would_have_heard(12.75 + TICK)


def test_the_silence_that_a_missed_renewal_ends_is_not_judged(silence: Silence) -> None:
    silence.heard("old", OWN, -100.0)
    assert at(4.25, silence, confirmed_at=0.0) == ["old"]
    assert at(4.5, silence, confirmed_at=0.0) == []


def test_each_time_that_our_own_renewals_are_not_confirmed_counts_from_its_own_beginning(silence: Silence) -> None:
    """Missed from 0 to 4.5, confirmed at 5, missed from 5 to 9.5: 4.5 s each do not count."""
    assert at(4.5, silence, confirmed_at=0.0) == []
    assert at(5.0, silence) == []
    assert at(9.5, silence, confirmed_at=5.0) == []
    assert at(17.0 - TICK, silence) == []
    assert at(17.0, silence) == ["s"]


# -- who is counted on -------------------------------------------------------------------------------------------------


def test_who_was_not_heard_of_for_three_fifths_of_its_own_ttl_is_not_counted_on() -> None:
    silence = Silence(OWN, 0.0)
    silence.heard("s", 10.0, 0.0)
    assert silence.is_lively("s", 6.0 - TICK)
    assert not silence.is_lively("s", 6.0)
    silence.heard("s", 10.0, 6.0)
    assert silence.is_lively("s", 12.0 - TICK)
    silence.forget("s")
    assert not silence.is_lively("s", 6.0)


def test_a_session_that_has_no_entry_is_missing_once_we_have_watched_for_longer_than_a_ttl() -> None:
    silence = Silence(OWN, 0.0)
    assert not silence.would_have_heard(8.0)
    assert silence.would_have_heard(8.0 + TICK)
