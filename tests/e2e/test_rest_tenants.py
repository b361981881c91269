# SPDX-License-Identifier: Apache-2.0
"""Two tenants call everything that the OpenAPI document has, and learn nothing of each other.

A call that is new fails this until CALLS says how it is made.
"""

import contextlib
import dataclasses
import datetime as dt
import json

import pytest
from harness import Kube, StillWaiting, wait_for
from manifests import Share
from rest_clients import client, viewer

MINE, THEIRS = "{mine}", "{theirs}"
QUOTA = {
    "apiVersion": "gpupack.dev/v1beta1",
    "kind": "GPUQuota",
    "metadata": {"name": "default"},
    "spec": {"gpus": [{"model": "*", "nominal": 4}]},
}
RESERVED = dt.datetime.now(dt.UTC) + dt.timedelta(days=50)
ROLES = ("gpupack-edit", "view")
LISTED = ({}, {"namespace": MINE}, {"namespace": THEIRS})
PATHS_OF_JOBS = ({"namespace": MINE, "name": "{my_job}"}, {"namespace": THEIRS, "name": "{job}"})
PATHS_OF_HELD = ({"namespace": MINE, "name": "{my_held}"}, {"namespace": THEIRS, "name": "{held}"})
JOB = {"gpus": 8, "workers": 9, "workload": {"name": "matmul"}}
ASKED = {"namespace": MINE, "job": JOB}
SETUPS = (
    {"job": "{mine}/{my_job}"},
    {"job": "{theirs}/{job}"},
    {"allocation": "{theirs}/{held}"},
    {"devices": ["{device}"]},
)

CALLS = {
    "GET status": [{}],
    "GET nodes": [{}, {"limit": 5000}],
    "GET monitoring": [{}],
    "GET health": [{}],
    "GET health/ready": [{}],
    "GET events": [each | {"full": True, "seconds": 3} for each in LISTED],
    "GET jobs": [*LISTED, {"phase": "Running"}, {"after": f"{THEIRS}/a"}],
    "GET jobs/{namespace}/{name}": PATHS_OF_JOBS,
    "GET jobs/{namespace}/{name}/explain": [
        *PATHS_OF_JOBS,
        {"namespace": MINE, "name": "{my_waiting}"},
        {"namespace": THEIRS, "name": "{waiting}"},
    ],
    "POST jobs/{namespace}/{name}/suspend": PATHS_OF_JOBS[1:],
    "POST jobs/{namespace}/{name}/resume": PATHS_OF_JOBS[1:],
    "POST jobs/{namespace}/{name}/rerun": PATHS_OF_JOBS[1:],
    "GET pods/{namespace}/{name}/explain": [{"namespace": THEIRS, "name": "{pod}"}],
    "GET queue": LISTED,
    "GET quotas": LISTED,
    "GET quotas/history": LISTED,
    "GET reservations": LISTED,
    "GET holders": [*LISTED, {"after": f"{THEIRS}/a/GPU-0"}],
    "GET cost": [
        each | {"group_by": group} for each in LISTED for group in ("namespace", "job", "model")
    ],
    "POST validate": [{"gpu_count": 1}, {"gpu_count": 4096}],
    "POST setup-tensorflow": SETUPS,
    "POST setup-pytorch": SETUPS,
    "POST what-if": [
        ASKED,
        ASKED | {"job": {"gpus": 1, "workload": {"name": "matmul"}}},
        {"namespace": THEIRS, "job": JOB},
        ASKED | {"quotas": [{"namespace": THEIRS, "spec": QUOTA["spec"]}]},
    ],
    "POST allocate": [{"gpu_count": 1, "namespace": THEIRS}],
    "GET allocations/{namespace}/{name}": PATHS_OF_HELD,
    "POST allocations/{namespace}/{name}/workload": [
        each | {"image": "none", "command": ["true"]} for each in PATHS_OF_HELD[1:]
    ],
    "DELETE allocations/{namespace}/{name}": PATHS_OF_HELD[1:],
    "GET snapshot": [{}],
    "POST config/reload": [{}],
}
"""By method and path: what is sent, in the path as far as it has places for it, else as the body of
a POST and as the query of all others."""

ADMINISTRATORS = {"GET snapshot", "POST config/reload"}
"""Refused to every tenant."""

LATER = {429, 503}
"""Statuses of answers to frequent calls, or while others load the API server."""

LASTS_SECONDS = 3600
"""Longer than the calls of both tenants take on a cluster that others fill."""


@dataclasses.dataclass(frozen=True)
class Resident:
    """A tenant, and all the words that belong to it."""

    kube: Kube
    token: str
    job: str
    waiting: str
    held: str
    pod: str
    reservation: str
    device: str

    @property
    def words(self) -> set[str]:
        """Words that no other user may read; the namespace is also in the name of the user."""
        names = {self.job, self.waiting, self.held, self.pod, self.reservation}
        return {self.kube.namespace, *names}


def reservation(name):
    """A window of one GPU in 50 days."""
    ends = RESERVED + dt.timedelta(hours=1)
    times = {"startTime": f"{RESERVED:%FT%TZ}", "endTime": f"{ends:%FT%TZ}"}
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUReservation",
        "metadata": {"name": name},
        "spec": {"model": "H100", "gpus": 1, **times},
    }


def settled(kube, api, judged, word, stack):
    """A tenant with a running and a pending job, a pod, quota, reservation and allocation."""
    token = stack.enter_context(viewer(kube, *ROLES))
    job, waiting, pod = f"{word}-job", f"{word}-waits", f"{word}-pod"
    kube.submit(QUOTA, reservation(f"{word}-window"))
    kube.submit(judged.job(job, gpus=1, seconds=LASTS_SECONDS))
    kube.submit(judged.job(waiting, gpus=8, workers=9))
    kube.submit(judged.pod(pod, share=Share(10, 4096)))
    asked = {"gpu_count": 1, "seconds": LASTS_SECONDS}
    made = called(api, "POST allocate", asked, token, key="one")
    assert made.status_code == 201, made.text
    held = made.json()["allocation_id"].partition("/")[2]
    # GPUs are free when others have ended: until then the call answers that it waits.
    for name in (job, held):
        kube.wait_phase(name, "Running", seconds=180)
    kube.wait_pod(pod, "Running", seconds=120)
    (placed,) = kube.gpujob(job)["status"]["placement"]
    window = f"{word}-window"
    return Resident(kube, token, job, waiting, held, pod, window, placed["gpus"][0])


@pytest.fixture(scope="module")
def api(system):
    with client(system) as calling:
        yield calling


@pytest.fixture
def tenants(others, api, judged):
    """No name of one is a part of the other's."""
    with contextlib.ExitStack() as stack:
        yield tuple(settled(others(word), api, judged, word, stack) for word in ("amber", "cobalt"))


def documented(api):
    """Method and path of every call."""
    paths = api.get("openapi/openapi.json").json()["paths"]
    return {
        f"{method.upper()} {path.removeprefix('/api/v1/gpu/')}"
        for path, methods in paths.items()
        for method in methods
    }


def filled(template, me, other):
    """A call of one tenant, with the names of both."""
    text = json.dumps(template)
    names = {"mine": me.kube.namespace, "my_job": me.job, "my_waiting": me.waiting}
    names |= {"my_held": me.held, "waiting": other.waiting}
    names |= {"theirs": other.kube.namespace, "job": other.job, "held": other.held}
    names |= {"pod": other.pod}
    for name, value in (names | {"device": other.device}).items():
        text = text.replace(f"{{{name}}}", value)
    return json.loads(text)


def called(api, call, sent, token, *, key=None):
    """Return the answer; repeat calls that are rejected for load, for a minute."""
    method, path = call.split(" ")
    places = {name: sent[name] for name in ("namespace", "name") if f"{{{name}}}" in path}
    rest = {name: value for name, value in sent.items() if name not in places}
    given = {"json": rest} if method == "POST" else {"params": rest}
    headers = {"Authorization": f"Bearer {token}"} | ({"Idempotency-Key": key} if key else {})
    said = "nothing"

    def answered():
        nonlocal said
        answer = api.request(method, path.format(**places), headers=headers, timeout=30, **given)
        said = f"{answer.status_code} {answer.text[:500]}"
        return None if answer.status_code in LATER else answer

    try:
        return wait_for(answered, seconds=60, what=f"{call} {sent}", every_seconds=1)
    except StillWaiting as error:
        raise StillWaiting(f"{error}; the last answer is {said}") from error


def test_every_documented_call_is_tested(api):
    assert documented(api) == set(CALLS)


def test_no_call_reveals_other_tenants(api, tenants):
    for me, other in (tenants, tenants[::-1]):
        seen = ""
        for call, templates in CALLS.items():
            for template in templates:
                sent = filled(template, me, other)
                answer = called(api, call, sent, me.token)
                said = json.dumps(sent)
                leaked = {word for word in other.words if word in answer.text and word not in said}
                assert not leaked, f"{call} {sent} as {me.kube.namespace} tells {leaked}"
                theirs = other.kube.namespace in said and "after" not in sent
                if theirs or call in ADMINISTRATORS:
                    assert answer.status_code in {403, 404}, f"{call} {sent}: {answer.text[:500]}"
                else:
                    assert answer.status_code == 200, f"{call} {sent}: {answer.text[:500]}"
                    seen += answer.text
        assert not {word for word in me.words if word not in seen}, "a user sees its own objects"
    for each in tenants:
        held = each.kube.gpujob(each.held)
        assert "deletionTimestamp" not in held["metadata"], "no other call released it"


def test_answers_are_not_cached(api, kube):
    with viewer(kube) as token:
        answer = api.get("status", headers={"Authorization": f"Bearer {token}"})
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
