# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_agent.inventory.health import grade, matters


@pytest.mark.parametrize(
    ("action", "health"),
    [
        (None, "Healthy"),
        (0, "Healthy"),
        (1, "Failed"),
        (2, "Failed"),
        (3, "Degraded"),
        (4, "Degraded"),
        (99, "Degraded"),
    ],
)
def test_the_recovery_action_grades_a_gpu(action, health):
    assert grade(action, ())[0] == health


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109, 63, 92])
def test_an_error_of_an_application_says_nothing_about_the_gpu(xid):
    assert grade(0, {xid}) == ("Healthy", "")
    assert not matters(xid)


@pytest.mark.parametrize("xid", [48, 64, 79, 95, 119, 120, 140])
def test_an_error_that_needs_a_reset_fails_the_gpu_and_is_named(xid):
    health, cause = grade(0, {xid})
    assert health == "Failed"
    assert cause.startswith(f"XID {xid}: ")


def test_the_worst_of_all_signs_counts():
    assert grade(3, {94, 13})[0] == "Degraded"
    assert grade(3, {94, 79})[1].startswith("XID 79")
