# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from gpupack_agent.outages import ENDED, Outage, with_condition
from gpupack_crds.condition import Condition
from gpupack_crds.gpunode import INVENTORY_UNAVAILABLE

BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NOW = BEGAN + dt.timedelta(minutes=1)
OUTAGE = Outage("DriverNotFound", "there is none", BEGAN)
OTHER = Condition("InventoryRejected", "False", "InventoryAccepted", "", "2026-01-01T00:00:00Z")


def conditions(recorded, outage, now, kind=INVENTORY_UNAVAILABLE):
    return with_condition(recorded, kind, outage, now)


@pytest.mark.parametrize("kind", ENDED)
def test_each_outage_has_a_condition_and_an_end(kind):
    stated = conditions((OTHER,), OUTAGE, NOW, kind)
    assert [(each.type, each.status) for each in stated[1:]] == [(kind, "True")]
    (_, over) = conditions(stated, None, NOW, kind)
    assert (over.status, over.reason) == ("False", ENDED[kind][0])


def test_a_node_without_outages_has_no_condition():
    assert conditions((OTHER,), None, NOW) == (OTHER,)


def test_an_outage_has_a_condition_with_its_reason_and_start():
    (other, stated) = conditions((OTHER,), OUTAGE, NOW)
    assert other == OTHER
    assert (stated.status, stated.reason, stated.message) == (
        "True",
        "DriverNotFound",
        "there is none",
    )
    assert stated.last_transition_time == "2026-01-01T00:00:00Z"


def test_a_continuing_outage_is_not_written_again():
    stated = conditions((), OUTAGE, NOW)
    later = Outage(OUTAGE.reason, OUTAGE.message, NOW)
    assert conditions(stated, later, NOW) == stated


def test_the_end_of_an_outage_is_stated_in_its_place():
    stated = conditions((), OUTAGE, NOW)
    (over, other) = conditions((*stated, OTHER), None, NOW)
    assert (over.status, over.reason) == ("False", "InventoryAvailable")
    assert over.last_transition_time == "2026-01-01T00:01:00Z"
    assert other == OTHER
    assert conditions((over, other), None, NOW + dt.timedelta(1)) == (over, other)


def test_a_message_is_as_long_as_a_condition_takes():
    (stated,) = conditions((), Outage("DriverUnavailable", "x" * 9000, BEGAN), NOW)
    assert len(stated.message) == 4096
