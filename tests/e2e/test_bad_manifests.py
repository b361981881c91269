# SPDX-License-Identifier: Apache-2.0
import pytest
from bad_manifests import BAD, GOOD


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_manifest_is_refused_with_the_field_and_the_fix(system, bad):
    done = system.kubectl("apply", "--dry-run=server", "-f", "-", stdin=bad.as_json())
    assert (done.returncode, done.stdout) == (1, "")
    assert bad.message in done.stderr


def test_no_bad_manifest_creates_anything(kube):
    for bad in BAD:
        assert kube.apply(bad.manifest()).returncode != 0
    assert kube.gpujobs() == []


def test_the_good_manifest_behind_the_bad_ones_is_accepted(system):
    done = system.kubectl("apply", "--dry-run=server", "-f", "-", stdin=GOOD.as_json())
    assert done.returncode == 0, done.stderr


def test_a_running_jobs_size_cannot_change(kube):
    kube.submit(GOOD.manifest())
    done = kube.kubectl("patch", "gj", "good", "--type=merge", "-p", '{"spec":{"gpus":2}}')
    assert "gpus cannot change once the job exists; delete the job and apply it anew" in done.stderr


def test_kubectl_explain_describes_every_field_of_a_job(system):
    explained = system.kubectl("explain", "gpujob.spec").stdout
    assert "Whole GPUs for each worker." in explained
    assert "<no description>" not in system.kubectl("explain", "gpujob", "--recursive").stdout
