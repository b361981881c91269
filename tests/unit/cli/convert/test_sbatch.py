# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_cli.convert.kinds import convert
from gpupack_cli.convert.report import NotConverted, Report
from gpupack_cli.convert.sbatch_layout import layout
from gpupack_cli.convert.sbatch_options import call, header
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.source import Script

GPU = "#SBATCH --gres=gpu:1"


@pytest.fixture
def script(converted):
    def of(*lines, image="i:1"):
        text = "\n".join(["#!/bin/bash", *lines, ""])
        results = convert([Script("run.sbatch", text)], Settings(image=image))
        return type(converted())(results)

    return of


def test_a_script_of_several_nodes_is_a_gang_that_runs_its_program(converted):
    found = converted("multinode.sbatch", image="i:1")
    assert (found.spec["workers"], found.spec["gpus"]) == (4, 8)
    assert found.spec["gpuModels"] == ["a100"]
    assert found.spec["spread"] == {"maxNodes": 4}
    assert found.spec["activeDeadlineSeconds"] == 36 * 3600
    assert found.worker["resources"] == {"requests": {"cpu": "16", "memory": "131072Mi"}}
    assert found.dropped == ["#SBATCH --partition"]
    text = found.objects[0]["data"]["job.sh"]
    assert "\ntorchrun \\\n  --nproc_per_node 8" in text
    assert 'export SLURM_JOB_NUM_NODES="$GPUPACK_WORKERS"' in text
    assert "srun --mpi" not in text


def test_an_array_of_tasks_is_a_job_for_each_index_with_a_worker_for_each_task(converted):
    found = converted("tasks.sbatch")
    config, *jobs = found.objects
    assert [each["metadata"]["name"] for each in jobs] == ["ddp-0", "ddp-2"]
    worker = jobs[1]["spec"]["template"]["spec"]["containers"][0]
    assert worker["image"] == "nvcr.io/nvidia/pytorch:24.01-py3"
    assert worker["env"] == [{"name": "ARRAY_INDEX", "value": "2"}]
    assert (jobs[1]["spec"]["workers"], jobs[1]["spec"]["gpus"]) == (8, 1)
    assert 'export SLURM_ARRAY_TASK_ID="$ARRAY_INDEX"' in config["data"]["job.sh"]
    assert found.dropped == ["#SBATCH --array", "line 7"]


@pytest.mark.parametrize(
    ("options", "workers", "gpus", "models"),
    [
        ("--gres=gpu", 1, 1, ()),
        ("--gres=gpu:4", 1, 4, ()),
        ("--gres=gpu:h100:4", 1, 4, ("h100",)),
        ("--gres=gpu:h100", 1, 1, ("h100",)),
        ("-N 2 --gpus-per-node=8", 2, 8, ()),
        ("-N2 --ntasks-per-node=8 --gpus-per-node=8", 16, 1, ()),
        ("-N2 --ntasks-per-node=2 --gpus-per-node=8", 4, 4, ()),
        ("-n 4 --gpus-per-task=2", 4, 2, ()),
        ("-G 8 --gpus-per-task=2", 4, 2, ()),
        ("-G v100:8 -n 4", 4, 2, ("v100",)),
        ("-G 8 -N 2", 2, 4, ()),
        ("-G 4", 1, 4, ()),
        ("-N 2 --gres=gpu:4 --ntasks-per-gpu=1", 8, 1, ()),
        ("-N 2-4 --gres=gpu:4", 2, 4, ()),
    ],
)
def test_tasks_with_gpus_become_workers(options, workers, gpus, models):
    found = layout(header(f"#SBATCH {options}\n"), Report())
    assert (found.workers, found.gpus, found.models) == (workers, gpus, models)


def test_tasks_that_share_gpus_are_started_by_the_program_of_a_worker():
    report = Report()
    found = layout(header("#SBATCH -N 2 --gres=gpu:1 --ntasks-per-node=4\n"), report)
    assert (found.workers, found.gpus, found.tasks) == (2, 1, 4)
    assert [each.path for each in report.findings] == ["--ntasks-per-node"]


@pytest.mark.parametrize(
    "options",
    [
        "-N 2",
        "--gres=nvme:1",
        "--gres=gpu:x:y",
        "--gpus=many",
        "--gpus=0",
        "-N 0 --gpus=1",
        "-N 3 -G 4",
        "--gpus-per-socket=1",
        "-N 1,2 --gpus=2",
        "--gpus=9 --gpus-per-task=2",
        "--ntasks=0 --gpus=1",
    ],
)
def test_sizes_without_an_equivalent_are_not_converted(options):
    with pytest.raises(NotConverted):
        layout(header(f"#SBATCH {options}\n"), Report())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("1:00:00", 3600),
        ("2-12", 60 * 3600),
        ("1-0:30", 88_200),
        ("1-00:00:01", 86_401),
        ("0", None),
        ("UNLIMITED", None),
    ],
)
def test_times_have_slurms_formats(script, text, seconds):
    assert script(GPU, f"#SBATCH -t {text}").spec.get("activeDeadlineSeconds") == seconds


def test_options_after_the_first_command_do_not_count_and_the_last_value_does():
    text = "#SBATCH -J a # a comment\n#SBATCH --job-name b\n\necho\n#SBATCH -J c\n"
    assert header(text) == {"job-name": "b"}


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (" python a.py -n 3", "python a.py -n 3"),
        (" -n 4 --mpi=pmix python a.py", "python a.py"),
        (" -N1 -n1 -w node 'a b'", "'a b'"),
        (" --label --exclusive \\\n  python", "python"),
        (' --export="ALL,A=b c" run', "run"),
        ("", ""),
        (" -n", ""),
    ],
)
def test_the_program_follows_the_options_of_srun(text, program):
    assert call(text).program == program


def test_what_a_container_lacks_is_reported_by_line(script):
    found = script(
        GPU,
        "head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)",
        "srun -N1 -n1 -w $head hostname &",
        "python train.py",
    )
    assert found.dropped == [
        "line 4: srun --nodelist",
        "line 4: srun ",
        "line 3",
        "$SLURM_JOB_NODELIST",
    ]


def test_a_script_that_slurm_runs_once_is_reported_for_several_workers(script):
    assert script("#SBATCH -N 2 --gres=gpu:1", "python a.py").dropped == ["script"]


@pytest.mark.parametrize("image", ["", "/images/a.sqsh"])
def test_a_script_needs_an_image_of_a_registry(script, image):
    found = script(GPU, "python a.py", image=image)
    assert (found.objects, found.dropped) == ([], ["--image"])


def test_a_slice_is_requested_by_its_profile(script):
    spec = script("#SBATCH --gres=gpu:1g.18gb:2").spec
    assert (spec["mig"], spec["gpus"]) == ("1g.18gb", 2)
    assert "gpuModels" not in spec


@pytest.mark.parametrize("text", ["0-1000000", "0-9:0", "a", "5-", "0-255,256"])
def test_an_invalid_or_large_array_is_not_converted(script, text):
    found = script(GPU, f"#SBATCH --array={text}")
    assert (found.objects, found.dropped) == ([], ["--array"])


@pytest.mark.parametrize(
    "option",
    ["--qos=high", "--dependency=afterok:1", "--signal=B:USR1@60", "-C a100", "--unknown=1"],
)
def test_an_option_without_equivalent_is_reported(script, option):
    assert len(script(GPU, f"#SBATCH {option}").dropped) == 1
