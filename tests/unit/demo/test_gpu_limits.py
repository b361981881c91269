# SPDX-License-Identifier: Apache-2.0
import gpu_limits
import pytest
from gpu_jobs import Broken

EVENTS = [
    {"reason": "GpuShareExceeded", "note": "a"},
    {"reason": "GpuShareTerminated", "note": "b"},
]


class Bench:
    """Pods by name, with their output."""

    def __init__(self, seen, *, phase="Failed", events=EVENTS):
        self.seen, self.phase, self.noted, self.applied = seen, phase, events, []

    def apply(self, *pods):
        self.applied += pods

    def running(self, *names):
        assert set(names) <= {pod["metadata"]["name"] for pod in self.applied}

    def view(self, name):
        return self.seen[name]

    def ended(self, _):
        return {"status": {"phase": self.phase}}

    def events(self, _):
        return self.noted


def rates(alone, *halves):
    names = ("alone", "half-a", "half-b")
    return {
        name: {"tflops": rate, "sms": 66, "free_gib": 29.7}
        for name, rate in zip(names, (alone, *halves), strict=True)
    }


def test_two_halves_with_equal_rates_pass_while_the_agent_is_killed():
    killed = []
    found = gpu_limits.check_rates(Bench(rates(660, 320, 318)), during=lambda: killed.append(1))
    assert (found["figures"]["halves"], killed) == ([320, 318], [1])


@pytest.mark.parametrize("halves", [(400, 260), (250, 255)])
def test_halves_that_differ_or_are_slow_fail_the_check(halves):
    with pytest.raises(Broken, match="two halves of a GPU compute"):
        gpu_limits.check_rates(Bench(rates(660, *halves)), during=lambda: None)


def test_a_share_that_gets_more_memory_fails_the_check():
    seen = {"greedy": {"allocated_gib": 29}, "neighbour": {"tflops": 1}}
    gpu_limits.check_memory(Bench(seen))
    with pytest.raises(Broken, match="was given"):
        gpu_limits.check_memory(Bench(seen | {"greedy": {"allocated_gib": 40}}))


@pytest.mark.parametrize(
    ("neighbour", "changed"),
    [({"died": "a"}, {}), ({}, {"phase": "Succeeded"}), ({}, {"events": EVENTS[:1]})],
)
def test_an_overrun_that_continues_or_ends_others_fails_the_check(neighbour, changed):
    assert gpu_limits.check_overrun(Bench({"neighbour": {}}))["figures"]["events"] == ["a", "b"]
    with pytest.raises(Broken, match="it ended as"):
        gpu_limits.check_overrun(Bench({"neighbour": neighbour}, **changed))
