# SPDX-License-Identifier: Apache-2.0
"""When the extender may speak, and its settings."""

import pytest

import gpupack_core as core
from gpupack_extender.errors import SettingsInvalid
from gpupack_extender.leadership import Leadership
from gpupack_extender.readiness import Readiness
from gpupack_extender.settings import Settings
from gpupack_extender.takeover import Takeover
from gpupack_kube import objects

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
def test_nobody_else_leads(leadership, holder):
    leadership.upsert(lease("s-1_0c7a"))
    leadership.upsert(lease(holder))
    assert not leadership.held


def test_a_lease_that_is_not_renewed_is_lost(leadership, clock):
    leadership.replace([lease("s-1_0c7a")])
    clock.now += 15
    assert not leadership.held


class Source:
    """Stands where a reflector does."""

    listed_at = 0.0
    asked = 0

    def list_anew(self):
        self.asked += 1


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def readiness(clock, source):
    takeover = Takeover([source], clock=clock)
    return Readiness(
        watches={},
        leadership=Leadership(pod_name="s-1", clock=clock, gained=takeover.begin),
        takeover=takeover,
        fresh_seconds=90,
        settle_seconds=10,
    )


def test_a_new_leader_decides_only_when_all_is_listed_since(readiness, source, clock):
    readiness.leadership.upsert(lease("s-1_0c7a"))
    clock.now += 14
    readiness.leadership.upsert(lease("s-1_0c7a"))
    assert readiness.missing_to_decide() == "WritesOfPredecessorMayBeUnseen"
    source.listed_at = 100.5
    assert readiness.missing_to_decide() == ""
    assert source.asked == 1


def test_who_leads_again_lists_again(readiness, source, clock):
    for _ in range(2):
        readiness.leadership.upsert(lease("s-1_0c7a"))
        clock.now += 15
    assert source.asked == 2


def test_a_new_leader_decides_only_when_its_predecessors_plans_are_over(readiness, source, clock):
    leadership, source.listed_at = readiness.leadership, clock.now
    leadership.upsert(lease("s-1_0c7a"))
    clock.now += 9
    assert readiness.missing_to_decide() == "PlansOfPredecessorMayBePending"
    clock.now += 1
    assert readiness.missing_to_decide() == ""


def test_settings_have_defaults():
    settings = Settings.from_environ(ENVIRON)
    assert settings.serving.verbs_port == 8888
    assert settings.decisions.policy == core.DEFAULT_POLICY


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("GPUPACK_MODE", "bold", "GPUPACK_MODE='bold' is not valid; set it to decisive or advis"),
        ("GPUPACK_POLICY", "x", "GPUPACK_POLICY='x' is not valid; set it to one of "),
        ("GPUPACK_OBSERVED_RESOURCES", "gpu", "names of extended resources such as nvidia.com/gpu"),
        ("GPUPACK_OBSERVED_RESOURCES", "nvidia.com/gpu,", "separated by commas"),
        ("GPUPACK_OBSERVED_RESOURCES", "gpupack.dev/gpu", "none of gpupack.dev"),
        ("GPUPACK_VERBS_PORT", "0", "set it to a port, 1 to 65535"),
        ("GPUPACK_ASSUME_SECONDS", "nan", "set it to seconds, more than 0"),
        ("GPUPACK_FRESH_SECONDS", "74.9", "='74.9' is not valid; set it to 75 to 3600 seconds"),
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
