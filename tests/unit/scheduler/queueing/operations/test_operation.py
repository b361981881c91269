# SPDX-License-Identifier: Apache-2.0
"""The life of an operation: which events lead where, and which cannot happen."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_scheduler.queueing.operations.operation import (
    NEXT,
    Event,
    ImpossibleEvent,
    Operation,
    Operations,
    Phase,
    next_phase,
)

IMPOSSIBLE = [
    pair
    for pair in itertools.product(Phase, Event)
    if pair[0].is_over
    or pair
    in {
        (Phase.DECIDED, Event.VICTIMS_END),
        (Phase.WRITTEN, Event.EXPIRED),
        (Phase.TERMINATING, Event.EXPIRED),
    }
]


@pytest.mark.parametrize(("phase", "event"), IMPOSSIBLE)
def test_an_event_that_cannot_happen_is_an_error(phase, event):
    with pytest.raises(ImpossibleEvent, match=f"{event} cannot happen .* {phase}"):
        next_phase(phase, event)


def test_each_pair_of_phase_and_event_is_either_possible_or_impossible():
    assert NEXT.keys() | set(IMPOSSIBLE) == set(itertools.product(Phase, Event))
    assert not NEXT.keys() & set(IMPOSSIBLE)


def test_a_preemption_that_succeeds_is_written_before_its_victims_end():
    phases = [Phase.DECIDED]
    for event in (Event.SHOWN, Event.VICTIMS_END, Event.STARTED):
        phases.append(next_phase(phases[-1], event))
    assert phases == [Phase.DECIDED, Phase.WRITTEN, Phase.TERMINATING, Phase.PLACED]


@given(st.lists(st.sampled_from(Event), max_size=12))
def test_no_victim_ends_for_an_operation_that_was_not_shown(events):
    phase, happened = Phase.DECIDED, []
    for event in events:
        if (phase, event) in NEXT:
            phase = next_phase(phase, event)
            happened.append(event)
        if phase is Phase.TERMINATING:
            assert Event.SHOWN in happened[: happened.index(Event.VICTIMS_END)]
        if Event.EXPIRED in happened:
            assert Event.SHOWN not in happened
        if phase.is_over:
            assert not [each for each in Event if (phase, each) in NEXT]


def test_an_operation_that_is_over_is_removed():
    operations = Operations()
    operations.put("a", Operation.decided("decision", 5.7, hold_seconds=10.0))
    assert operations.overdue(15.6) == []
    assert operations.overdue(15.7) == ["a"]
    operations.apply("a", Event.EXPIRED)
    assert len(operations) == 0
    operations.apply("a", Event.SHOWN)


def test_what_is_shown_does_not_expire():
    operations = Operations()
    operations.put("a", Operation.decided("decision", 5.0, hold_seconds=10.0))
    operations.apply("a", Event.SHOWN)
    assert operations.overdue(1e9) == []
    assert (operations.oldest(), operations.phase("a")) == (5.0, Phase.WRITTEN)


def test_an_operation_is_as_old_as_its_status_says():
    """A status has whole seconds: both processes count from the same time."""
    decided = Operation.decided("decision", 1234.9, hold_seconds=10.0)
    assert (decided.since, decided.write_by) == (1234.0, 1244.9)
    assert Operation.found("decision", 1234.0).since == decided.since
