# SPDX-License-Identifier: Apache-2.0
"""The wall clock of gpupack's components jumps while jobs run: an hour ahead, then two hours back.

libfaketime is preloaded into the components and changes their time of day. The monotonic clock, the
host's clock and all other clocks stay as they are.
"""

import contextlib
import datetime as dt
import json
import time

import pytest
from harness import wait_for
from manifests import JUDGE_IMAGE
from parts import AGENT, OPERATOR, SCHEDULER, lease_holder, pods_of_part, restarts, rolled_out

PARTS = {OPERATOR: "operator", SCHEDULER: "extender", AGENT: "agent"}
LIBRARY = {"name": "faketime", "mountPath": "/faketime"}
ENVIRONMENT = {
    "LD_PRELOAD": "/faketime/libfaketime.so",
    "FAKETIME_TIMESTAMP_FILE": "/faketime/offset",
    "FAKETIME_NO_CACHE": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "DONT_FAKE_MONOTONIC": "1",
    # Files keep their modification times, as they do when a real clock is set.
    "NO_FAKE_STAT": "1",
}
TELL = "import time; print(time.time())"


def lent(container):
    """Return a patch that mounts the library into a component's pods and preloads it."""
    bring = "cp /libfaketime.so /faketime/ && echo +0 > /faketime/offset && chmod 666 /faketime/*"
    lender = {
        "name": "faketime",
        "image": JUDGE_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", bring],
        "volumeMounts": [LIBRARY],
    }
    variables = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
    user = {"name": container, "env": variables, "volumeMounts": [LIBRARY]}
    return {
        "initContainers": [lender],
        "containers": [user],
        "volumes": [{"name": "faketime", "emptyDir": {}}],
    }


def returned(container):
    """Return the patch that removes it again."""
    gone = {"$patch": "delete"}
    variables = [{"name": name, **gone} for name in ENVIRONMENT]
    mount = {"mountPath": LIBRARY["mountPath"], **gone}
    return {
        "initContainers": [{"name": "faketime", **gone}],
        "containers": [{"name": container, "env": variables, "volumeMounts": [mount]}],
        "volumes": [{"name": "faketime", **gone}],
    }


def patch(system, workload, spec):
    body = json.dumps({"spec": {"template": {"spec": spec}}})
    system.insist("patch", workload, "--patch", body)


@pytest.fixture
def wall_clocks(whole, system):
    """Yield a function that sets the wall clocks of all components at once, as one wrong clock."""
    with contextlib.ExitStack() as stack:
        for workload, container in PARTS.items():
            stack.callback(rolled_out, system, workload, seconds=240)
            stack.callback(patch, system, workload, returned(container))
            patch(system, workload, lent(container))
        for workload in PARTS:
            rolled_out(system, workload, seconds=240)
        yield lambda offset_hours: jump(system, offset_hours)
        jump(system, 0)


def jump(system, hours):
    for component, container in (("operator", "operator"), ("scheduler", "extender")):
        set_clock(system, component, container, hours)
    set_clock(system, "agent", "agent", hours)


def set_clock(system, component, container, hours):
    """Set the clock of all pods of a component, and check that it changed."""
    for pod in pods_of_part(system, component):
        where = ("exec", pod["metadata"]["name"], "-c", container, "--")
        system.insist(*where, "sh", "-c", f"echo {hours:+}h > /faketime/offset")
        seconds = float(system.insist(*where, "python3", "-c", TELL))
        assert seconds - time.time() == pytest.approx(hours * 3600, abs=60)


def moments(job):
    """Return every timestamp in a job's status."""
    status = job["status"]
    texts = [status["startedAt"], status["finishedAt"]]
    texts += [attempt[key] for attempt in status["attempts"] for key in ("startedAt", "finishedAt")]
    texts += [condition["lastTransitionTime"] for condition in status["conditions"]]
    return [dt.datetime.fromisoformat(text) for text in texts]


def test_clocks_that_jump_an_hour_on_and_two_back_end_no_attempt_and_cost_no_leader(
    kube, judged, wall_clocks, system, verdict, tell
):
    """Jobs with a deadline run through both jumps; others are admitted and end under each."""
    began = dt.datetime.now(dt.UTC)
    leaders = [lease_holder(system, name) for name in ("gpupack-operator", "gpupack-scheduler")]
    before = restarts(system)
    through = [judged.job(f"through-{i}", gpus=2, seconds=45) for i in range(2)]
    for job in through:
        job["spec"]["activeDeadlineSeconds"] = 600
    crowd = [judged.job(f"waiting-{i}", gpus=8, seconds=2) for i in range(2)]
    kube.submit(*through)
    for job in through:
        kube.wait_phase(job["metadata"]["name"], "Running")
    kube.submit(*crowd)
    names = [job["metadata"]["name"] for job in (*through, *crowd)]
    for hours in (1, -1):
        wall_clocks(hours)
        kube.submit(judged.job(f"under-{hours + 2}", gpus=1, seconds=2))
        names.append(f"under-{hours + 2}")
        kube.wait_phase(names[-1], "Succeeded", seconds=90)
    jobs = kube.wait_finished(names, seconds=240)
    ended = dt.datetime.now(dt.UTC)
    assert verdict(jobs) == 0
    assert restarts(system) == before
    wait_for(
        lambda: (
            leaders
            == [lease_holder(system, name) for name in ("gpupack-operator", "gpupack-scheduler")]
        ),
        seconds=5,
        what="the same leaders",
    )
    slack = dt.timedelta(seconds=5)
    for job in jobs.values():
        assert all(began - slack <= moment <= ended + slack for moment in moments(job))
    tell(f"{len(jobs)} jobs, all in their first attempt, {(ended - began).total_seconds():.0f} s")
