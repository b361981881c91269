# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_operator.decision.conditions import OCCASIONAL, Type, Writer, clip, get
from gpupack_operator.decision.reasons import JobReason


def written(build, *steps):
    """A status after (seconds, type, value, reason)."""
    status = Writer(now=build.at(0), generation=1).first(GpuJobStatus())
    for seconds, kind, value, reason in steps:
        status = Writer(now=build.at(seconds), generation=2).set(status, kind, value, reason, "m")
    return status


def test_the_first_write_sets_all_conditions(build):
    assert {found.type for found in written(build).conditions} == set(Type) - OCCASIONAL


def test_the_transition_time_moves_only_with_the_value(build):
    status = written(build, (5, Type.ADMITTED, "False", "A"), (9, Type.ADMITTED, "False", "B"))
    condition = get(status, Type.ADMITTED)
    assert (condition.last_transition_time, condition.reason) == (build.stamp(5), "B")
    assert condition.observed_generation == 2


@pytest.mark.parametrize(
    ("steps", "phase"),
    [
        ([], "Pending"),
        ([(1, Type.ADMITTED, "False", JobReason.RESTARTING)], "Pending"),
        ([(1, Type.ADMITTED, "False", JobReason.SUSPENDED)], "Suspended"),
        ([(1, Type.ADMITTED, "True", JobReason.ADMITTED)], "Admitted"),
        ([(1, Type.ADMITTED, "True", "A"), (2, Type.RUNNING, "True", "R")], "Running"),
        ([(1, Type.ADMITTED, "True", "A"), (2, Type.SUCCEEDED, "True", "S")], "Succeeded"),
        ([(1, Type.ADMITTED, "True", "A"), (2, Type.FAILED, "True", "F")], "Failed"),
    ],
)
def test_the_phase_follows_from_the_conditions(build, steps, phase):
    assert written(build, *steps).phase == phase


def test_the_reason_of_a_job_is_that_of_the_deciding_condition(build):
    status = written(build, (1, Type.ADMITTED, "True", "A"), (2, Type.FAILED, "True", "F"))
    assert (status.reason, status.message) == ("F", "m")


def test_the_condition_stalled_explains_an_unfinished_job_only(build):
    stall = (2, Type.STALLED, "True", "ApiError")
    assert written(build, (1, Type.ADMITTED, "True", "A"), stall).reason == "ApiError"
    assert written(build, (1, Type.FAILED, "True", "F"), stall).reason == "F"


def test_a_long_message_is_shortened_to_the_limit_of_the_schema():
    assert len(clip("x" * 9999)) == 2048
    assert clip("short") == "short"
