# SPDX-License-Identifier: Apache-2.0
"""Writes that succeed while their answers are lost, late, or report a failure.

A proxy is placed between one component and the API server. It records what was really written, so
each test can check that its fault occurred and that nothing was written twice.
"""

import collections
import json

import pytest
from api_proxy import Fault, Loss, running_proxy
from harness import STATE, cluster_kind
from parts import OPERATOR, SCHEDULER, environment, led_through

from gpupack_devcluster.settings import ClusterSettings, Paths

JOBS = 4
WORKERS = 2
BINDING = "/api/v1/namespaces/test-.*/pods/[^/]+/binding"
POD = "/api/v1/namespaces/test-.*/pods/[^/]+"
JOB = "/apis/batch/v1/namespaces/test-.*/jobs"
STATUS = "/apis/gpupack.dev/v1beta1/namespaces/test-.*/gpujobs/[^/]+/status"
EXTENDER_TIMEOUT_SECONDS = 5
"""Time after which kube-scheduler gives up a call (httpTimeout)."""
CLIENT_TIMEOUT_SECONDS = 15
"""Time after which gpupack's components give up a call."""
LOSSES = [Loss.OF_THE_REPLY, Loss.OF_THE_CALL, Loss.UNAVAILABLE_AFTERWARDS]


@pytest.fixture(scope="module")
def proxy():
    if cluster_kind() == "kind":
        pytest.skip("plain kind keeps the API server's key to itself")
    with running_proxy(ClusterSettings(paths=Paths(STATE))) as found:
        yield found


@pytest.fixture(scope="module")
def extender_s(system, proxy):
    """Lead the extender through the proxy."""
    through = led_through(proxy.host, proxy.port)
    with environment(system, SCHEDULER, "extender", through):
        yield proxy
        proxy.begin()


@pytest.fixture(scope="module")
def operator_s(system, proxy):
    """Lead the operator through the proxy."""
    with environment(system, OPERATOR, "operator", led_through(proxy.host, proxy.port)):
        yield proxy
        proxy.begin()


@pytest.fixture
def gangs(kube, judged):
    """Run a few gangs to their end under faults and return them; each worker has its own pod."""

    def run(proxy, *faults, seconds=240):
        proxy.begin(*faults)
        jobs = [
            judged.job(f"gang-{i}", workers=WORKERS, gpus=2, podPerWorker=True) for i in range(JOBS)
        ]
        kube.submit(*jobs)
        ended = kube.wait_finished([job["metadata"]["name"] for job in jobs], seconds=seconds)
        proxy.faults = ()
        return ended

    return run


def paths(calls):
    return collections.Counter(call.path for call in calls)


def bound_once(proxy):
    """Check that each pod was bound by exactly one write."""
    written = paths(proxy.written("POST", BINDING))
    return len(written) == JOBS * WORKERS and set(written.values()) == {1}


def created(proxy):
    """Return how often each Job was created."""
    bodies = [json.loads(call.body) for call in proxy.written("POST", JOB)]
    return collections.Counter(body["metadata"]["name"] for body in bodies)


def struck(proxy, path):
    """Return how many different objects a fault hit."""
    return len({hit for hit in proxy.struck if hit.endswith(path)})


@pytest.mark.parametrize("loss", LOSSES)
def test_when_a_binding_or_its_reply_is_lost_each_pod_is_bound_once_and_runs_once(
    gangs, extender_s, loss, verdict, ledger, tell
):
    jobs = gangs(extender_s, Fault(method="POST", path=BINDING, loss=loss))
    assert struck(extender_s, "/binding") == JOBS * WORKERS
    assert bound_once(extender_s)
    assert verdict(jobs) == 0
    ledger.wait_empty()


def test_without_any_reply_about_a_pod_the_watch_suffices_and_each_pod_is_bound_once(
    gangs, extender_s, verdict, ledger
):
    """The read that checks a Binding gets no answer either."""
    jobs = gangs(
        extender_s,
        Fault(method="POST", path=BINDING, loss=Loss.OF_THE_REPLY, times=1000),
        Fault(method="GET", path=POD, loss=Loss.OF_THE_REPLY, times=1000),
    )
    assert struck(extender_s, "/binding") == JOBS * WORKERS
    assert bound_once(extender_s)
    assert verdict(jobs) == 0
    ledger.wait_empty()


@pytest.mark.parametrize(
    ("loss", "seconds"),
    [
        (Loss.LATE_REPLY, EXTENDER_TIMEOUT_SECONDS + 2),
        (Loss.LATE_CALL, EXTENDER_TIMEOUT_SECONDS + 2),
        (Loss.LATE_CALL, CLIENT_TIMEOUT_SECONDS + 3),
    ],
)
def test_when_a_binding_takes_longer_than_its_callers_wait_each_pod_is_bound_once(
    gangs, extender_s, loss, seconds, verdict, ledger
):
    jobs = gangs(extender_s, Fault(method="POST", path=BINDING, loss=loss, seconds=seconds))
    assert struck(extender_s, "/binding") == JOBS * WORKERS
    assert bound_once(extender_s)
    assert verdict(jobs) == 0
    ledger.wait_empty()


@pytest.mark.parametrize("path", [JOB, STATUS], ids=["POST Job", "PUT status"])
@pytest.mark.parametrize("loss", LOSSES)
def test_when_a_write_of_the_operator_s_or_its_reply_is_lost_each_attempt_has_one_job(
    gangs, operator_s, path, loss, verdict
):
    method = "POST" if path == JOB else "PUT"
    jobs = gangs(operator_s, Fault(method=method, path=path, loss=loss, times=4))
    assert len(operator_s.struck) >= 4
    assert created(operator_s) == dict.fromkeys([f"{name}-1" for name in jobs], 1)
    assert verdict(jobs) == 0


def test_when_no_write_of_the_operator_s_is_ever_answered_each_attempt_still_has_one_job(
    kube, judged, operator_s, refusals
):
    """Jobs fail once each: their first attempts are deleted, and others are created."""
    operator_s.begin(
        Fault(method="POST", path=JOB, loss=Loss.OF_THE_REPLY, times=1000),
        Fault(method="PUT", path=STATUS, loss=Loss.OF_THE_REPLY, times=1000),
        Fault(method="DELETE", path=f"{JOB}/[^/]+", loss=Loss.OF_THE_REPLY, times=1000),
    )
    names = [f"failing-{i}" for i in range(3)]
    kube.submit(*(judged.job(name, exit_code=3, maxRestarts=1) for name in names))
    jobs = kube.wait_finished(names, seconds=240)
    assert {len(job["status"]["attempts"]) for job in jobs.values()} == {2}
    assert {job["status"]["restarts"] for job in jobs.values()} == {1}
    assert created(operator_s) == {f"{name}-{n}": 1 for name in names for n in (1, 2)}
    assert refusals() == []
