# SPDX-License-Identifier: Apache-2.0
"""The life of a job beyond the happy path."""

import pytest
from harness import condition, wait_for


def outcomes(job):
    return [attempt.get("outcome") for attempt in job["status"]["attempts"]]


def test_a_failing_worker_fails_the_job_with_its_exit_code(kube, judged):
    kube.submit(judged.job("broken", exit_code=7))
    job = kube.wait_phase("broken", "Failed")
    assert outcomes(job) == ["Failed"]
    assert "7" in condition(job, "Failed")["message"]


def test_a_failing_job_is_repeated_up_to_its_limit(kube, judged):
    kube.submit(judged.job("stubborn", exit_code=7, maxRestarts=2))
    job = kube.wait_phase("stubborn", "Failed", seconds=90)
    assert outcomes(job) == ["Failed", "Failed", "Failed"]
    assert job["status"]["restarts"] == 2


@pytest.mark.slow
@pytest.mark.alone
def test_a_job_that_failed_on_a_node_is_tried_again_on_another_and_then_wherever_it_fits(
    kube, judged
):
    kube.submit(judged.job("unlucky", exit_code=7, maxRestarts=2))
    job = kube.wait_phase("unlucky", "Failed", seconds=90)
    first, second, _ = (attempt["nodes"] for attempt in job["status"]["attempts"])
    assert first != second
    fault = job["status"]["attempts"][0]["fault"]
    assert (fault["worker"], fault["node"]) == (0, first)
    assert fault["devices"].startswith("GPU-")


def test_a_worker_that_hangs_is_ended_by_its_probe_and_the_job_starts_again(kube, judged):
    job = judged.job("hangs", maxRestarts=1)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["command"] = ["sh", "-c", "touch /tmp/alive && sleep 600"]
    probe = "test -n \"$(find /tmp/alive -newermt '-3 seconds')\""
    container["livenessProbe"] = {
        "exec": {"command": ["sh", "-c", probe]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    kube.submit(job)
    job = kube.wait_phase("hangs", "Failed", seconds=90)
    assert outcomes(job) == ["Failed", "Failed"]
    assert "exit code 137" in job["status"]["attempts"][0]["message"]


def test_the_last_log_lines_and_the_pods_of_a_failed_attempt_stay(kube, judged):
    job = judged.job("loud", maxRestarts=1)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container |= {"name": "main", "command": ["sh", "-c", "echo boom >&2; exit 3"]}
    kube.submit(job)
    job = kube.wait_phase("loud", "Failed", seconds=90)
    assert [attempt["message"].endswith(": boom") for attempt in job["status"]["attempts"]] == [
        True,
        True,
    ]

    def both_failed():
        # The kubelet's word of a phase follows that of the container's end.
        return [pod["status"]["phase"] for pod in kube.pods("loud")] == ["Failed", "Failed"]

    wait_for(both_failed, seconds=60, what="both pods are there, and failed")


@pytest.mark.slow
def test_a_job_with_a_wrong_image_releases_its_gpus_and_shows_its_next_attempt(kube, judged):
    job = judged.job("typo")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container |= {"image": "registry.invalid/typo:1", "imagePullPolicy": "IfNotPresent"}
    kube.submit(job)
    job = kube.wait_reason("typo", "Restarting", seconds=240)
    assert (job["status"]["phase"], job["status"].get("placement")) == ("Pending", None)
    assert "(ImagePullFailed)" in job["status"]["message"]
    assert "the next one starts at " in job["status"]["message"]


def test_one_failed_worker_stops_the_whole_gang(kube, judged):
    failing = judged.job("gang", workers=2, gpus=1)
    command = 'test "$GPUPACK_WORKER_INDEX" = 0 && exit 9; exec python3 -S /judge.py 300'
    failing["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", command]
    kube.submit(failing)
    job = kube.wait_phase("gang", "Failed")
    assert "9" in condition(job, "Failed")["message"]


@pytest.mark.alone
def test_a_job_past_its_deadline_fails_and_releases_its_gpus(kube, judged):
    kube.submit(judged.job("endless", workers=2, gpus=8, seconds=300, activeDeadlineSeconds=3))
    job = kube.wait_phase("endless", "Failed")
    assert outcomes(job) == ["DeadlineExceeded"]
    kube.submit(judged.job("next", workers=2, gpus=8))
    kube.wait_phase("next", "Succeeded")


def test_a_finished_job_is_deleted_after_its_time_to_live(kube, judged):
    kube.submit(judged.job("short-lived", ttlSecondsAfterFinished=1))
    wait_for(lambda: kube.gpujobs() == [], seconds=60, what="the job is gone")
    wait_for(lambda: kube.pods() == [], seconds=60, what="its pods are gone")


@pytest.mark.alone
def test_a_suspended_job_releases_its_gpus_and_resumes_as_a_new_attempt(kube, judged):
    kube.submit(judged.job("pausing", workers=2, gpus=8, seconds=4))
    kube.wait_phase("pausing", "Running")
    kube.kubectl("patch", "gj", "pausing", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    kube.wait_phase("pausing", "Suspended")
    wait_for(lambda: kube.pods("pausing") == [], seconds=60, what="its pods are gone")
    kube.kubectl("patch", "gj", "pausing", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    job = kube.wait_phase("pausing", "Succeeded", "Failed")
    assert outcomes(job) == ["Suspended", "Succeeded"]


def test_a_job_applied_suspended_does_not_start(kube, judged):
    kube.submit(judged.job("later", suspend=True))
    kube.wait_phase("later", "Suspended")
    assert kube.pods() == []


def test_a_termination_message_that_is_no_result_is_named_and_harms_nothing(kube, judged):
    kube.submit(judged.job("garbage", message="Segmentation fault {"))
    job = kube.wait_phase("garbage", "Succeeded", "Failed")
    assert job["status"]["phase"] == "Succeeded"
    unreadable = condition(job, "ResultsValid")
    assert (unreadable["status"], unreadable["reason"]) == ("False", "ResultUnreadable")
    assert "Segmentation fault" in unreadable["message"]


def test_a_result_that_the_api_server_would_refuse_does_not_keep_its_attempt_from_ending(
    kube, judged
):
    figures = '{"schema": "gpupack.dev/result/v1", "metrics": {"x": 1' + "0" * 400 + "}}"
    kube.submit(judged.job("vast", message=figures))
    job = kube.wait_phase("vast", "Succeeded", "Failed")
    assert outcomes(job) == ["Succeeded"]
    unreadable = condition(job, "ResultsValid")
    assert (unreadable["status"], unreadable["reason"]) == ("False", "ResultUnreadable")


def test_a_template_that_no_pod_can_have_fails_with_the_api_servers_words(kube, judged):
    bad = judged.job("impossible")
    bad["spec"]["template"]["spec"]["volumes"] = [{"name": "locks", "hostPath": {"type": "Door"}}]
    kube.submit(bad)
    job = kube.wait_phase("impossible", "Failed")
    assert condition(job, "Failed")["reason"] == "InvalidTemplate"
    assert "volumes" in condition(job, "Failed")["message"]


def test_a_template_that_cannot_be_merged_fails_and_names_the_field(kube, judged):
    bad = judged.job("unmerged")
    (container,) = bad["spec"]["template"]["spec"]["containers"]
    container["volumeMounts"].append({"name": "locks"})
    kube.submit(bad)
    job = kube.wait_phase("unmerged", "Failed")
    assert condition(job, "Failed")["reason"] == "InvalidTemplate"
    assert condition(job, "Failed")["message"].startswith(
        "spec.template.spec.containers[0].volumeMounts[1]: mountPath is missing"
    )


def test_deleting_a_waiting_job_leaves_nothing(kube, judged):
    kube.submit(judged.job("waiting", workers=8, gpus=8))
    kube.wait_phase("waiting", "Pending")
    kube.delete("gpujob", "waiting")
    wait_for(lambda: leftovers(kube) == "", seconds=60, what="nothing is left")


@pytest.mark.alone
def test_deleting_a_running_job_leaves_nothing_and_frees_its_gpus(kube, judged):
    kube.submit(judged.job("running", workers=2, gpus=8, seconds=300))
    kube.wait_phase("running", "Running")
    kube.delete("gpujob", "running")
    kube.submit(judged.job("next", workers=2, gpus=8))
    kube.wait_phase("next", "Succeeded")
    kube.delete("gpujob", "next")
    wait_for(lambda: leftovers(kube) == "", seconds=60, what="nothing is left")


def test_deleting_a_job_at_once_leaves_nothing(kube, judged):
    for index in range(5):
        kube.submit(judged.job(f"blink-{index}", workers=2, gpus=2, seconds=60))
        kube.delete("gpujob", f"blink-{index}", "--wait=false")
    wait_for(lambda: leftovers(kube) == "", seconds=60, what="nothing is left")


def test_the_events_of_a_job_show_its_history(kube, judged):
    kube.submit(judged.job("events"))
    kube.wait_phase("events", "Succeeded")
    wait_for(
        lambda: {"Admitted", "Succeeded"} <= set(kube.events("events")),
        seconds=60,
        what="its events",
    )


def leftovers(kube):
    done = kube.kubectl("get", "gpujobs,jobs,pods,services", "-o", "name")
    assert done.returncode == 0, done.stderr
    return done.stdout
