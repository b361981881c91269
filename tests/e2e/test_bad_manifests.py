# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from bad_manifests import BAD, FIXED, GOOD, GOOD_TOO, Bad, share
from harness import Kube


@pytest.fixture(scope="module")
def elsewhere(cluster) -> Kube:
    """A namespace that GPUJobs may run in; nothing is created there."""
    return Kube(kubeconfig=cluster.kubeconfig, namespace="default")


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_manifest_is_refused_with_the_field_and_the_fix(elsewhere, bad):
    done = elsewhere.kubectl("apply", "--dry-run=server", "-f", "-", stdin=bad.as_json())
    assert (done.returncode, done.stdout) == (1, "")
    assert bad.message in done.stderr


@pytest.mark.parametrize(
    "change",
    [{"spec.minMemory": "10GB"}, share(memory="10GB"), {"spec.gpus": "1"}],
    ids=["minMemory", "share", "gpus"],
)
def test_a_value_of_a_wrong_form_gets_one_sentence(elsewhere, change):
    bad = Bad("a wrong form", change, "")
    done = elsewhere.kubectl("apply", "--dry-run=server", "-f", "-", stdin=bad.as_json())
    assert len(done.stderr.splitlines()) == 1
    assert "regular expression" not in done.stderr
    assert "should match" not in done.stderr


def test_no_bad_manifest_creates_anything(kube):
    """All in one stream: kubectl goes on after a refusal, and starts in longer than one takes."""
    stream = "\n---\n".join(bad.as_json() for bad in BAD)
    done = kube.kubectl("apply", "-f", "-", stdin=stream)
    assert done.stdout == ""
    assert [bad.name for bad in BAD if bad.message not in done.stderr] == []
    assert kube.gpujobs() == []


@pytest.mark.parametrize("good", [GOOD, *GOOD_TOO], ids=lambda good: good.name)
def test_a_good_manifest_is_accepted(elsewhere, good):
    done = elsewhere.kubectl("apply", "--dry-run=server", "-f", "-", stdin=good.as_json())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("field", "change", "patch"), FIXED)
def test_the_request_of_a_job_is_immutable(kube, field, change, patch):
    suspended = Bad("a job", change | {"spec.suspend": True}, "")
    kube.submit(suspended.manifest())
    done = kube.kubectl("patch", "gj", "good", "--type=merge", "-p", json.dumps({"spec": patch}))
    assert f"{field} cannot change after the job is created; delete the job and" in done.stderr


def test_kubectl_explain_describes_every_field_of_a_job(system):
    explained = system.kubectl("explain", "gpujob.spec").stdout
    assert "Whole GPUs for each worker" in explained
    assert "<no description>" not in system.kubectl("explain", "gpujob", "--recursive").stdout
