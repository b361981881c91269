# SPDX-License-Identifier: Apache-2.0
"""What the cluster suite does when the API server is away."""

import importlib.util
import pathlib
import subprocess

import pytest

HARNESS = pathlib.Path(__file__).parents[2] / "e2e/harness.py"


@pytest.fixture(scope="module")
def harness():
    spec = importlib.util.spec_from_file_location("harness", HARNESS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def kube(harness):
    """Build a Kube whose kubectl answers with these errors, one after the other."""

    class Answering(harness.Kube):
        def kubectl(self, *arguments, stdin=None):
            del arguments, stdin
            error = self.answers.pop(0)
            return subprocess.CompletedProcess([], int(bool(error)), stdout="done", stderr=error)

    def answering(*errors):
        stand_in = Answering(kubeconfig=HARNESS, namespace="x")
        object.__setattr__(stand_in, "answers", list(errors))
        return stand_in

    return answering


def test_calls_are_repeated_while_the_api_server_is_away(kube):
    assert kube("unexpected EOF", "").insist("get", "pods") == "done"


def test_a_refusal_fails_the_test(kube):
    with pytest.raises(AssertionError, match="AlreadyExists"):
        kube("Error from server (AlreadyExists): x").insist("create", "namespace", "x")


@pytest.mark.parametrize(("verb", "said"), [("create", "AlreadyExists"), ("delete", "NotFound")])
def test_a_repeated_call_whose_first_answer_was_lost_succeeds(kube, verb, said):
    kube("unexpected EOF", f"Error from server ({said}): x").insist(verb, "namespace", "x")


def test_a_state_that_comes_late_is_waited_for_and_one_that_never_comes_is_shown(harness):
    seen = [1, 2, 3]
    harness.wait_equal(lambda: seen.pop(0), 3, what="three")
    with pytest.raises(harness.StillWaiting, match="three; expected 3, seen 4"):
        harness.wait_equal(lambda: 4, 3, seconds=0.1, what="three")


def test_a_status_is_shown_by_what_tells_why_a_test_failed(harness):
    attempt = {"outcome": "Failed", "reason": "WorkerFailed", "message": "exit code 3", "nodes": ""}
    status = {"phase": "Failed", "message": "m", "attempts": [attempt], "plannedPod": {"spec": 1}}
    attempts = "'attempts': ['Failed WorkerFailed exit code 3']"
    expected = f"its status: {{'phase': 'Failed', 'message': 'm', {attempts}}}"
    assert harness.brief({"status": status}) == expected
