# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from gpupack_cli.errors import InputInvalid, UsageInvalid
from gpupack_cli.job_manifest import (
    MAX_SCRIPT_BYTES,
    JobOptions,
    as_yaml,
    build_manifests,
    generate_name,
)
from gpupack_crds import names
from gpupack_crds.gpujob import GpuJobSpec


def wanted(**changed):
    return JobOptions(**{"command": ("torchrun", "train.py"), "image": "i:1"} | changed)


def spec(**changed):
    job, _ = build_manifests(wanted(**changed), "team")
    msgspec.convert(job["spec"], GpuJobSpec)
    return job["spec"]


def test_a_command_becomes_a_job_of_one_worker_with_one_gpu():
    job, config = build_manifests(wanted(name="train"), "team")
    assert job["metadata"] == {"name": "train", "namespace": "team"}
    assert (job["apiVersion"], job["kind"]) == ("gpupack.dev/v1beta1", "GPUJob")
    assert job["spec"] == {
        "workers": 1,
        "gpus": 1,
        "template": {
            "spec": {
                "containers": [
                    {"name": "worker", "image": "i:1", "command": ["torchrun", "train.py"]}
                ]
            }
        },
    }
    assert config is None


def test_options_become_fields():
    found = spec(
        gpus=4,
        workers=2,
        models=("H100", "A100-80GB"),
        min_memory="40Gi",
        priority_class="urgent",
        max_restarts=3,
        deadline_seconds=60,
        ttl_seconds=0,
        variables=("A=1=2", "B="),
        non_root=True,
    )
    pod = found.pop("template")["spec"]
    assert found == {
        "workers": 2,
        "gpus": 4,
        "gpuModels": ["H100", "A100-80GB"],
        "minMemory": "40Gi",
        "priorityClassName": "urgent",
        "maxRestarts": 3,
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 0,
    }
    assert pod["containers"][0]["env"] == [
        {"name": "A", "value": "1=2"},
        {"name": "B", "value": ""},
    ]
    assert pod["securityContext"] == {"runAsNonRoot": True}


@pytest.mark.parametrize("text", ["25,10Gi", "25%,10Gi", "25:10Gi", "25/10Gi"])
def test_a_share_is_percent_and_memory(text):
    found = spec(share=text)
    assert found["share"] == {"percent": 25, "memory": "10Gi"}
    assert "gpus" not in found


def test_mig_slices_are_counted_by_gpus_with_a_profile():
    assert spec(mig="1g.18gb", gpus=2) | {"template": None} == {
        "workers": 1,
        "gpus": 2,
        "mig": "1g.18gb",
        "template": None,
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("25", "write percent and memory, as 25,10Gi"),
        ("10Gi", "write percent and memory, as 25,10Gi"),
        ("0,10Gi", "the percentage '0' must be from 1 to 99"),
        ("100,10Gi", "the percentage '100' must be from 1 to 99"),
        ("a,b", "the percentage 'a' must be from 1 to 99"),
        (",10Gi", "the percentage '' must be from 1 to 99"),
        ("25,", "the memory '' must be at least 1Mi and less than 1Pi"),
        ("25,10G B", "the memory '10G B' must be at least 1Mi and less than 1Pi"),
        ("25,0", "the memory '0' must be at least 1Mi and less than 1Pi"),
        ("25,1024Ti", "the memory '1024Ti' must be at least 1Mi and less than 1Pi"),
    ],
)
def test_an_invalid_share_is_refused_with_its_wrong_part(text, says):
    with pytest.raises(UsageInvalid, match=says):
        spec(share=text)


def test_models_become_an_order_with_the_time_for_which_each_is_waited_for():
    found = spec(models=("H100", "A100"), model_fallback_seconds=600)
    assert found["gpuModels"] == ["H100", "A100"]
    assert found["gpuModelFallback"] == {"afterSeconds": 600}
    assert "gpuModelFallback" not in spec(models=("H100", "A100"))


@pytest.mark.parametrize("models", [(), ("H100",), ("H100", "H100")])
def test_an_order_needs_several_models(models):
    with pytest.raises(UsageInvalid, match="two or more different --model options"):
        spec(models=models, model_fallback_seconds=600)


def test_a_repeated_variable_is_refused():
    with pytest.raises(UsageInvalid, match="--env gives A twice"):
        spec(variables=("A=1", "B=2", "A=3"))


@pytest.mark.parametrize("text", ["A", "=1", "1A=1", "A B=1"])
def test_an_invalid_variable_is_refused_with_the_form(text):
    with pytest.raises(UsageInvalid, match="write NAME=VALUE"):
        spec(variables=(text,))


def test_scripts_are_in_the_writable_working_folder(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)\nprint(2)\n")
    job, config = build_manifests(wanted(name="t", scripts=(script,)), "team")
    assert config["data"] == {"train.py": "print(1)\nprint(2)\n"}
    assert config["metadata"] == {"name": "t", "namespace": "team"}
    pod = job["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    assert worker["workingDir"] == "/workspace"
    assert [mount["mountPath"] for mount in worker["volumeMounts"]] == [
        "/workspace",
        "/workspace/train.py",
    ]
    assert pod["volumes"][0] == {"name": "workspace", "emptyDir": {}}


def test_the_manifest_of_a_dry_run_can_be_applied(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)\nprint(2)\n")
    documents = [
        each for each in build_manifests(wanted(name="t", scripts=(script,)), "team") if each
    ]
    text = as_yaml(documents)
    assert list(yaml.safe_load_all(text)) == documents
    assert "train.py: |\n    print(1)\n    print(2)\n" in text


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"x" * (MAX_SCRIPT_BYTES + 1), "put them into the image"), (b"\xff\xfe", "as text")],
)
def test_an_unusable_script_is_refused(tmp_path, content, says):
    script = tmp_path / "train.py"
    script.write_bytes(content)
    with pytest.raises(InputInvalid, match=says):
        spec(scripts=(script,))


def test_two_scripts_of_one_name_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    scripts = (tmp_path / "t.py", tmp_path / "a" / "t.py")
    for each in scripts:
        each.write_text("")
    with pytest.raises(UsageInvalid, match="needs a unique name"):
        spec(scripts=scripts)


@pytest.mark.parametrize(
    ("command", "begins"),
    [
        (("torchrun", "--nnodes=2", "src/My_Train.py"), "my-train-"),
        (("/usr/bin/python3", "-c", "print()"), "python3-"),
        (("./42",), "job-42-"),
        (("…",), "job-"),
        (("x" * 300,), "x" * 46 + "-"),
    ],
)
def test_a_generated_name_is_unique_and_derived_from_the_command(command, begins):
    made = {generate_name(command) for _ in range(20)}
    assert len(made) == 20
    for name in made:
        assert name.startswith(begins)
        assert len(name) <= names.MAX_JOB_NAME
        assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name)


def test_workers_get_separate_pods_where_that_is_requested():
    assert spec(workers=2, pod_per_worker=True)["podPerWorker"] is True
    assert "podPerWorker" not in spec(workers=2)


def test_a_script_is_read_up_to_the_limit():
    with pytest.raises(InputInvalid, match="more than 900 KiB"):
        build_manifests(wanted(scripts=(Path("/dev/zero"),)), "team")
