# SPDX-License-Identifier: Apache-2.0
"""Suspend, resume and rerun by the command, and what those that wait say of their start."""

import datetime as dt
import json

import pytest
from harness import wait_for
from test_cli import administrator, cli  # noqa: F401 - fixtures
from test_queue import limit, quota


def test_a_job_that_has_ended_is_rerun_as_another_and_cannot_be_revised(kube, cli, judged):  # noqa: F811
    kube.submit(judged.job("train", seconds=1))
    ended = kube.wait_phase("train", "Succeeded", seconds=120)
    patch = json.dumps({"spec": {"revision": 1}})
    refused = kube.kubectl("patch", "gpujob", "train", "--type=merge", f"--patch={patch}")
    assert refused.returncode != 0
    assert "a job that has ended cannot be revised" in refused.stderr
    done = cli("rerun", *cli.here, "train")
    assert (done.returncode, done.stdout) == (0, "train-rerun-1\n"), done.stderr
    again = kube.wait_phase("train-rerun-1", "Succeeded", seconds=120)
    assert again["metadata"]["annotations"]["gpupack.dev/rerun-of"] == "train"
    assert again["spec"]["template"] == ended["spec"]["template"]
    assert kube.gpujob("train")["status"] == ended["status"]
    assert "has ended (Succeeded)" in cli("suspend", *cli.here, "train").stderr


def test_a_job_is_suspended_and_resumed_by_the_command(kube, cli, judged):  # noqa: F811
    kube.submit(judged.job("train", seconds=600))
    kube.wait_phase("train", "Running")
    assert "has not ended (Running)" in cli("rerun", *cli.here, "train").stderr
    assert cli("suspend", *cli.here, "train").returncode == 0
    kube.wait_phase("train", "Suspended")
    assert cli("resume", *cli.here, "train").returncode == 0
    kube.wait_phase("train", "Running", seconds=120)
    shown = cli("explain", *cli.here, "train").stdout
    assert "  1: Suspended, 20" in shown
    assert "  2: running, since 20" in shown


@pytest.mark.slow
def test_a_job_that_waits_for_a_deadline_shows_its_start_and_starts_by_then(
    kube,
    cli,  # noqa: F811
    administrator,  # noqa: F811
    judged,
):
    """A standalone pod and a job wait in one queue, for the only job that holds the quota."""
    kube.submit(quota(limit(1, borrowingLimit=0)))
    holder = judged.job("holder", seconds=600)
    holder["spec"]["activeDeadlineSeconds"] = 90
    kube.submit(holder)
    kube.wait_phase("holder", "Running")
    kube.submit(judged.pod("notebook"))
    kube.wait_pod("notebook", "Pending")
    kube.submit(judged.job("train", seconds=1))
    kube.wait_reason("train", "BorrowingLimitExceeded")

    def asked(*arguments):
        done = cli(*arguments, *cli.here, "-o", "json", **administrator)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def both():
        rows = asked("queue")["waiting"]
        return rows if {each["kind"] for each in rows} == {"Pod", "GPUJob"} else None

    rows = wait_for(both, seconds=30, what="pod and job in the queue")
    assert [each["name"] for each in rows] == ["notebook", "train"]
    assert rows[0]["position"] < rows[1]["position"]
    start = asked("explain", "pod/notebook")["explanation"]["start"]
    assert start["kind"] == "At", start
    at = dt.datetime.fromisoformat(start["at"])
    held = kube.gpujob("holder")["status"]["attempts"][0]["startedAt"]
    assert abs((at - dt.datetime.fromisoformat(held)).total_seconds() - 90) <= 5

    def positions():
        """Other tests' jobs come and go between the two calls."""
        (row,) = [each for each in asked("queue")["waiting"] if each["name"] == "train"]
        return asked("explain", "train")["explanation"]["position"] == row["position"]

    wait_for(positions, seconds=30, what="queue and explain name one position")
    kube.wait_pod("notebook", "Running", seconds=180)
    begun = dt.datetime.fromisoformat(kube.pod("notebook")["status"]["startTime"])
    assert (begun - at).total_seconds() < 60  # the holder's pod has its grace period to end in


def test_a_job_that_no_node_can_run_is_unsatisfiable(kube, judged):
    job = judged.job("lost")
    job["spec"]["gpuModels"] = ["B300"]
    kube.submit(job)
    message = kube.wait_reason("lost", "Unsatisfiable")["status"]["message"]
    assert message.startswith("can never start on these nodes")
