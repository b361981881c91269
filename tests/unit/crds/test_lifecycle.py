# SPDX-License-Identifier: Apache-2.0
from gpupack_crds.lifecycle import WholeJob, manifest_of, rerun_names
from gpupack_crds.names import MAX_JOB_NAME
from gpupack_kubeclient.objects import ObjectMeta


def test_reruns_are_numbered():
    assert rerun_names("train")[:2] == ["train-rerun-1", "train-rerun-2"]
    assert rerun_names("train-rerun-4")[0] == "train-rerun-5"
    assert all(len(name) <= MAX_JOB_NAME for name in rerun_names("x" * MAX_JOB_NAME))


def test_the_same_request_has_the_same_name():
    assert rerun_names("train", "a\0k") == rerun_names("train", "a\0k")
    assert rerun_names("train", "a\0k") != rerun_names("train", "b\0k")


def test_scripts_that_went_with_the_job_have_the_new_jobs_name():
    volumes = [
        {"name": "scripts", "configMap": {"name": "train", "defaultMode": 365}},
        {"name": "settings", "configMap": {"name": "settings"}},
    ]
    spec = {"gpus": 1, "template": {"spec": {"volumes": volumes}}}
    old = WholeJob(metadata=ObjectMeta(name="train", namespace="team"), spec=spec)
    made = manifest_of(old, "train-rerun-1")["spec"]["template"]["spec"]["volumes"]
    assert [each["configMap"]["name"] for each in made] == ["train-rerun-1", "settings"]
    assert volumes[0]["configMap"]["name"] == "train"
