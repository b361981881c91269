# SPDX-License-Identifier: Apache-2.0
import gpu_limits
import pytest
from gpu_jobs import Broken

TOLD = [{"reason": "GpuShareExceeded", "note": "a"}, {"reason": "GpuShareTerminated", "note": "b"}]


class Bench:
    """Pods by name, with what they saw."""

    def __init__(self, seen, *, phase="Failed", told=TOLD):
        self.seen, self.phase, self.told, self.applied = seen, phase, told, []

    def apply(self, *pods):
        self.applied += pods

    def running(self, *names):
        assert set(names) <= {pod["metadata"]["name"] for pod in self.applied}

    def view(self, name):
        return self.seen[name]

    def ended(self, _):
        return {"status": {"phase": self.phase}}

    def events(self, _):
        return self.told


def rates(alone, *halves):
    names = ("alone", "half-a", "half-b")
    return {
        name: {"tflops": rate, "sms": 66, "free_gib": 29.7}
        for name, rate in zip(names, (alone, *halves), strict=True)
    }


def test_two_halves_that_compute_alike_hold_while_the_agent_is_killed():
    killed = []
    found = gpu_limits.check_rates(Bench(rates(660, 320, 318)), during=lambda: killed.append(1))
    assert (found["figures"]["halves"], killed) == ([320, 318], [1])


@pytest.mark.parametrize("halves", [(400, 260), (250, 255)])
def test_halves_that_differ_or_are_slow_break_the_promise(halves):
    with pytest.raises(Broken, match="two halves of a GPU compute"):
        gpu_limits.check_rates(Bench(rates(660, *halves)), during=lambda: None)


def test_a_share_that_is_given_more_memory_breaks_the_promise():
    seen = {"greedy": {"allocated_gib": 29}, "beside": {"tflops": 1}}
    gpu_limits.check_memory(Bench(seen))
    with pytest.raises(Broken, match="was given"):
        gpu_limits.check_memory(Bench(seen | {"greedy": {"allocated_gib": 40}}))


@pytest.mark.parametrize(
    ("beside", "changed"),
    [({"died": "a"}, {}), ({}, {"phase": "Succeeded"}), ({}, {"told": TOLD[:1]})],
)
def test_an_overrun_that_goes_on_or_takes_others_along_breaks_the_promise(beside, changed):
    assert gpu_limits.check_overrun(Bench({"beside": {}}))["figures"]["told"] == ["a", "b"]
    with pytest.raises(Broken, match="it ended as"):
        gpu_limits.check_overrun(Bench({"beside": beside}, **changed))
