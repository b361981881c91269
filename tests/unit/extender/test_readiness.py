# SPDX-License-Identifier: Apache-2.0
"""When the extender may speak, and its settings."""

import pytest

from gpupack_extender.leadership import Leadership
from gpupack_extender.readiness import Readiness
from gpupack_extender.settings import Settings
from gpupack_extender.takeover import Takeover
from gpupack_kubeclient import objects
from gpupack_kubeclient.environment import SettingsInvalid
from gpupack_placement import DEFAULT_POLICY

ENVIRON = {"GPUPACK_TLS_CERT": "/tls.crt", "GPUPACK_TLS_KEY": "/tls.key", "POD_NAME": "s-1"}


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def lease(holder):
    spec = objects.LeaseSpec(holder_identity=holder, lease_duration_seconds=15)
    return objects.Lease(spec=spec)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def leadership(clock):
    return Leadership(pod_name="s-1", clock=clock)


def test_the_holder_of_the_lease_leads(leadership):
    leadership.upsert(lease("s-1_0c7a"))
    assert leadership.held


@pytest.mark.parametrize("holder", ["s-2_0c7a", "s-11_0c7a", "s-1", ""])
def test_no_other_replica_leads(leadership, holder):
    leadership.upsert(lease("s-1_0c7a"))
    leadership.upsert(lease(holder))
    assert not leadership.held


def test_a_lease_that_is_not_renewed_is_lost(leadership, clock):
    leadership.replace([lease("s-1_0c7a")])
    clock.now += 15
    assert not leadership.held


class Timers:
    """Stands where an event loop does."""

    def __init__(self, clock):
        self._clock, self._due, self._call = clock, None, None

    def later(self, seconds, call):
        self._due, self._call = self._clock.now + seconds, call
        return self

    def cancel(self):
        self._call = None

    def pass_(self, seconds):
        self._clock.now += seconds
        if self._call and self._clock.now >= self._due:
            call, self._call = self._call, None
            call()


class Source:
    """Stands where a reflector does."""

    listed_at = 0.0
    asked = 0

    def relist(self):
        self.asked += 1


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def timers(clock):
    return Timers(clock)


class Jobs:
    """Stands where the ledger's GPUJobs do."""

    pending = False

    def await_plans(self):
        return self.pending


@pytest.fixture
def jobs():
    return Jobs()


@pytest.fixture
def takeover(clock, source, jobs, timers):
    return Takeover(
        [source],
        awaits_plans=jobs.await_plans,
        clock=clock,
        settle_seconds=10,
        later=timers.later,
    )


@pytest.fixture
def readiness(clock, takeover):
    return Readiness(
        watches={},
        leadership=Leadership(pod_name="s-1", clock=clock, gained=takeover.begin),
        takeover=takeover,
        stale_after_seconds=90,
    )


def test_a_new_leader_lists_when_its_predecessors_plans_are_over(readiness, source, timers):
    readiness.leadership.upsert(lease("s-1_0c7a"))
    timers.pass_(9)
    source.listed_at = 109.0
    assert (readiness.missing_to_decide(), source.asked) == ("AwaitingPreviousPlans", 0)
    timers.pass_(1)
    assert (readiness.missing_to_decide(), source.asked) == ("AwaitingPreviousWrites", 1)
    source.listed_at = 110.0
    assert readiness.missing_to_decide() == ""


def test_a_leader_that_leads_again_lists_again(readiness, source, timers):
    for _ in range(2):
        readiness.leadership.upsert(lease("s-1_0c7a"))
        timers.pass_(15)
    assert source.asked == 2


def test_a_leader_that_leads_again_before_it_is_ready_starts_over(readiness, source, timers):
    readiness.leadership.upsert(lease("s-1_0c7a"))
    timers.pass_(5)
    readiness.leadership.upsert(lease("s-2_0c7a"))
    readiness.leadership.upsert(lease("s-1_0c7a"))
    timers.pass_(9)
    assert source.asked == 0
    timers.pass_(1)
    assert source.asked == 1


def test_without_a_predecessor_and_pending_jobs_a_leader_waits_for_one_list(
    readiness, takeover, source, timers
):
    readiness.leadership.upsert(lease("s-1_0c7a"))
    timers.pass_(0.1)
    takeover.has_no_predecessor(takeover.terms)
    assert (readiness.missing_to_decide(), source.asked) == ("AwaitingPreviousPlans", 1)
    source.listed_at = 100.05
    assert readiness.missing_to_decide() == "AwaitingPreviousPlans"
    source.listed_at = 100.1
    assert readiness.missing_to_decide() == ""
    timers.pass_(10)
    assert (readiness.missing_to_decide(), source.asked) == ("", 1)


def test_while_a_job_waits_for_its_plan_the_settling_time_counts_without_a_predecessor(
    readiness, takeover, jobs, source, timers
):
    jobs.pending = True
    readiness.leadership.upsert(lease("s-1_0c7a"))
    takeover.has_no_predecessor(takeover.terms)
    source.listed_at = 101.0
    timers.pass_(9)
    assert readiness.missing_to_decide() == "AwaitingPreviousPlans"
    timers.pass_(1)
    assert (readiness.missing_to_decide(), source.asked) == ("AwaitingPreviousWrites", 2)


def test_once_decisions_are_made_a_new_job_does_not_end_them(readiness, takeover, jobs, source):
    readiness.leadership.upsert(lease("s-1_0c7a"))
    takeover.has_no_predecessor(takeover.terms)
    source.listed_at = 100.0
    assert readiness.missing_to_decide() == ""
    jobs.pending = True
    assert readiness.missing_to_decide() == ""


def test_what_was_found_in_an_earlier_term_does_not_count(readiness, takeover, source):
    readiness.leadership.upsert(lease("s-1_0c7a"))
    earlier = takeover.terms
    readiness.leadership.upsert(lease("s-2_0c7a"))
    readiness.leadership.upsert(lease("s-1_0c7a"))
    takeover.has_no_predecessor(earlier)
    assert (readiness.missing_to_decide(), source.asked) == ("AwaitingPreviousPlans", 0)


def test_settings_have_defaults():
    settings = Settings.from_environ(ENVIRON)
    assert settings.serving.verbs_port == 8888
    assert settings.decisions.policy == DEFAULT_POLICY


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("GPUPACK_MODE", "bold", "GPUPACK_MODE='bold' is not valid; set it to one of decisive"),
        ("GPUPACK_POLICY", "x", "GPUPACK_POLICY='x' is not valid; set it to one of "),
        ("GPUPACK_OBSERVED_RESOURCES", "gpu", "names of extended resources such as nvidia.com/gpu"),
        ("GPUPACK_OBSERVED_RESOURCES", "nvidia.com/gpu,", "separated by commas"),
        ("GPUPACK_OBSERVED_RESOURCES", "gpupack.dev/gpu", "none of gpupack.dev"),
        ("GPUPACK_VERBS_PORT", "0", "set it to a whole number, 1 to 65535"),
        ("GPUPACK_ASSUME_SECONDS", "nan", "set it to seconds, more than 0"),
        (
            "GPUPACK_STALE_AFTER_SECONDS",
            "74.9",
            "='74.9' is not valid; set it to seconds, 75 or more, at most 3600",
        ),
        ("GPUPACK_LOG_LEVEL", "loud", "set it to one of DEBUG, INFO, WARNING, ERROR, CRITICAL"),
        ("POD_NAME", "", "POD_NAME is not set; set it to this pod's name"),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_may_be(name, value, text):
    with pytest.raises(SettingsInvalid) as error:
        Settings.from_environ({**ENVIRON, name: value})
    assert text in str(error.value)


def test_observed_resources_are_listed_by_commas():
    observed = {"GPUPACK_OBSERVED_RESOURCES": "nvidia.com/gpu, example.org/gpu,nvidia.com/gpu"}
    settings = Settings.from_environ({**ENVIRON, **observed})
    assert settings.decisions.observed_resources == ("nvidia.com/gpu", "example.org/gpu")
    assert Settings.from_environ(ENVIRON).decisions.observed_resources == ()
