# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_crds.gpujob_status import PlannedPod
from gpupack_kubeclient.objects import Pod
from gpupack_operator.decision import running
from gpupack_operator.decision.conditions import Type, get
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.excess_requests import find_excess_request
from gpupack_operator.decision.model import Plan, PlanPending
from gpupack_operator.decision.reasons import JobReason


def container(name="worker", **requests):
    return {"name": name, "resources": {"requests": requests}}


PLANNED = {"containers": [container(cpu="2", memory="1Gi")], "overhead": {"cpu": "100m"}}


def beyond(**spec):
    pod = msgspec.convert({"spec": PLANNED | spec}, Pod)
    return find_excess_request([pod], PlannedPod(spec=PLANNED))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"containers": [container(cpu="2000m", memory="1024Mi")]},
        {"containers": [container(cpu="1"), container("idle")]},
        {"nodeSelector": {"pool": "gold"}},
    ],
    ids=["the same", "in other words", "less", "no request"],
)
def test_a_pod_without_further_requests_is_as_planned(spec):
    assert beyond(**spec) == ""


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"containers": [container(cpu="4", memory="1Gi")]},
            "container worker requests cpu: 4, planned was 2",
        ),
        ({"containers": [container(rdma="1")]}, "container worker requests rdma: 1, planned was 0"),
        ({"initContainers": [container("mesh", cpu="1")]}, "container mesh was added"),
        ({"overhead": {"cpu": "1"}}, "overhead requests cpu: 1, planned was 100m"),
    ],
    ids=["more", "another resource", "another container", "more overhead"],
)
def test_a_request_beyond_the_plan_is_named(spec, said):
    assert beyond(**spec) == said


def test_no_request_is_named_if_the_planned_pod_is_not_known():
    pod = msgspec.convert({"spec": PLANNED}, Pod)
    assert [find_excess_request([pod], each) for each in (None, PlannedPod(omitted=True))] == [
        "",
        "",
    ]


@pytest.fixture
def admitted(build):
    """A job that was planned as a pod of one GPU without CPU."""
    planned = PlannedPod(spec={"containers": [container(**{"gpupack.dev/gpu": "1"})]})
    fresh = build.gpujob()
    answer = Plan(build.placement("a"), seconds=9, planned_pods={"": planned})
    return build.after(fresh, decide(build.see(fresh, answer=answer, now=0)))


def heavy(build):
    return build.pod(phase="Pending", node="", limits={"gpupack.dev/gpu": "1", "cpu": "8"})


def test_the_message_names_excess_requests_while_pods_do_not_start(admitted, build):
    seen = build.see(admitted, jobs=[build.job()], pods=[heavy(build)])
    message = get(decide(seen).status, Type.RUNNING).message
    assert message.startswith(running.STARTING_MESSAGE)
    assert "more than was planned" in message
    assert "container worker requests cpu: 8, planned was 0" in message


def test_the_message_of_an_unbound_attempt_names_excess_requests(admitted, build):
    seen = build.see(admitted, jobs=[build.job()], pods=[heavy(build)], now=120)
    attempt = decide(seen).status.attempts[-1]
    assert attempt.reason == JobReason.BIND_TIMEOUT
    assert "container worker requests cpu: 8, planned was 0" in attempt.message


def test_the_status_records_the_planned_pod_of_a_waiting_job(build):
    planned = PlannedPod(spec=PLANNED)
    answer = PlanPending("TooFewFreeGpus", "full", planned_pods={"": planned})
    job = build.gpujob()
    job = build.after(job, decide(build.see(job, answer=answer)))
    assert job.status.planned_pod == planned
    decision = decide(build.see(job, answer=PlanPending("TooFewFreeGpus", "full")))
    assert decision.status.planned_pod is None


def test_a_job_that_has_ended_keeps_no_planned_pod(admitted, build):
    done = build.pod(phase="Succeeded", exit_code=0, ended=20)
    status = decide(build.see(admitted, jobs=[build.job()], pods=[done], now=30)).status
    assert (status.phase, status.planned_pod) == ("Succeeded", None)
