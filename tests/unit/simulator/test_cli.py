# SPDX-License-Identifier: Apache-2.0
import json
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from processes import run_process
from simulator_builders import node

from gpupack_placement import Cluster, snapshot
from gpupack_simulator import commands
from gpupack_simulator.cli import main

CLASSROOM = Path(__file__).parents[3] / "examples/simulator/classroom.yaml"

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,64000,262144,4,T4\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "a,1000,1,1,460,\nb,1000,1,1,1000,T4|P100\nc,1000,1,0,0,\nd,1000,1,2,1000,\n"
)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return tmp_path


def said(*arguments, fails=False):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert (result.exit_code != 0) is fails, result.output
    return result.output


def replayed(files, *more):
    said(
        *("replay", "--nodes", files / "nodes.csv", "--pods", files / "pods.csv", "-q", "-j", 1),
        *("--policies", "fgd,best-fit", "--seeds", 2, "--json", files / "out.json", *more),
    )
    return json.loads((files / "out.json").read_text())["results"]


def test_replay_writes_the_published_figures_by_policy_and_seed(files):
    results = replayed(files, "--demand", 1.3)
    assert list(results) == ["fgd", "best-fit"]
    assert list(results["fgd"]) == ["0", "1"]
    figures = results["best-fit"]["1"]
    assert 50 < figures["allocation_percent_at_100"] <= figures["allocation_percent_at_130"] <= 100


def test_replay_with_departures_writes_allocation_and_waits_by_size(files):
    results = replayed(files, "--departures", "--load", 0.95, "--warm-up", 3, "--measured", 30)
    figures = results["fgd"]["0"]
    assert 30 < figures["allocation_percent"] < 100
    assert {"share", "one", "2-3"} <= set(figures["wait_lifetimes"])


MIXED = """\
pods: 100
nodes:
  - {name: small, count: 2, gpus: 4, model: T4, gpuMemory: 16}
  - {name: large, gpus: 4, model: A100, gpuMemory: 80}
sizes: [{weight: 1, gpus: 1}]
wishes: [{weight: 1}, {weight: 1, minGpuMemory: 40}]
"""


@pytest.mark.parametrize("experiment", [("--demand", 1.3), ("--departures", "--measured", 5)])
def test_replay_draws_a_mixed_cluster_from_its_description(tmp_path, experiment):
    (tmp_path / "mixed.yaml").write_text(MIXED)
    given = ("--mixed", tmp_path / "mixed.yaml", "--policies", "default", "--seeds", 2, "-j", 1)
    said("replay", *given, *experiment, "-q", "--json", tmp_path / "out.json")
    for figures in json.loads((tmp_path / "out.json").read_text())["results"]["default"].values():
        assert 30 < figures["allocation_percent"] <= 100


def test_folders_for_the_figures_are_made_before_anything_is_run(files):
    given = ("replay", "--nodes", files / "nodes.csv", "--pods", files / "pods.csv", "-q", "-j", 1)
    said(*given, "--seeds", 1, "--json", files / "new/folder/out.json")
    assert (files / "new/folder/out.json").exists()
    refusal = said(*given, "--json", files / "nodes.csv/out.json", fails=True)
    assert "nodes.csv cannot be made a folder: File exists" in refusal


def test_processes_give_what_one_process_gives(files):
    def without_times(results):
        return [
            {k: v for k, v in one.items() if k != "wall_seconds"}
            for seeds in results.values()
            for one in seeds.values()
        ]

    assert without_times(replayed(files)) == without_times(replayed(files, "-j", 2))


def test_a_what_if_runs_on_a_snapshot(tmp_path):
    (tmp_path / "state.json").write_text(json.dumps(snapshot.dump(Cluster([node("a")]))))
    (tmp_path / "jobs.yaml").write_text("jobs: [{name: j, gpus: 3, duration: 2, count: 2}]")
    output = said(
        *("replay", "--snapshot", tmp_path / "state.json", "--jobs", tmp_path / "jobs.yaml"),
        *("--policies", "first-fit", "-j", 1, "--json", tmp_path / "out.json"),
    )
    assert "first-fit" in output
    figures = json.loads((tmp_path / "out.json").read_text())["results"]["first-fit"]["0"]
    assert (figures["jobs_succeeded"], figures["makespan_steps"]) == (2, 4)


def test_errors_of_a_file_are_printed_without_a_traceback(files):
    (files / "pods.csv").write_text(PODS + "e,many,1,0,0,\n")
    output = said(
        "replay",
        "--nodes",
        files / "nodes.csv",
        "--pods",
        files / "pods.csv",
        "--policies",
        "best-fit",
        fails=True,
    )
    assert output == "Error: pods.csv:6: cpu_milli: 'many': expected `int`\n"


def test_an_unknown_policy_is_refused_before_any_run(files):
    output = said(
        "replay",
        "--nodes",
        files / "nodes.csv",
        "--pods",
        files / "pods.csv",
        "--policies",
        "best-fit,worse",
        fails=True,
    )
    assert "worse" in output
    assert "best-fit" in output


def test_replay_without_a_source_says_which_there_are():
    assert "give --nodes and --pods, or --snapshot and --jobs" in said(
        "replay", "--policies", "best-fit", fails=True
    )


def test_a_trace_without_a_mapping_is_refused(files):
    output = said(
        "run", CLASSROOM, "--trace", files / "pods.csv", "--policies", "best-fit", fails=True
    )
    assert "--trace needs --mapping" in output


def test_step_prints_the_cluster_until_all_is_over():
    output = said("step", CLASSROOM, "--policies", "best-fit")
    assert output.count("GPUs allocated") == 10
    assert "succeeded" in output


def test_compare_runs_the_classroom_under_every_policy():
    output = said("compare", CLASSROOM, "-q")
    assert output == ""


def test_without_what_draws_a_report_is_refused_before_anything_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "find_spec", lambda name: None)
    output = said("run", CLASSROOM, "--out", tmp_path / "out", fails=True)
    assert "needs jinja2 and matplotlib: pip install 'gpupack-simulator[plots]'" in output
    assert not (tmp_path / "out").exists()


def test_a_folder_takes_the_report(tmp_path):
    said("run", CLASSROOM, "--policies", "best-fit", "-q", "--out", tmp_path / "out")
    assert "<html" in (tmp_path / "out/report.html").read_text()
    assert (tmp_path / "out/runs/best-fit/0-jobs.csv").exists()


SCENARIO = "nodes: [{name: a, gpus: 4}]\njobs: [{name: j, gpus: 1, duration: 2}]\n"


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.parametrize("every", [0, -1, "nan", "inf"])
def test_pictures_that_time_never_reaches_are_refused(scenario, every):
    output = said("step", scenario, "--every", every, "--steps", 1, fails=True)
    assert output.startswith("Error: --every is ")


def test_a_name_may_look_like_markup(scenario):
    scenario.write_text(SCENARIO.replace("name: j", 'name: "[/bold]:x:"'))
    assert "0:[/bold]:x:" in said("step", scenario, "--policies", "best-fit", "--steps", 0)


def test_a_mapping_without_a_trace_is_refused(scenario):
    output = said("run", scenario, "--mapping", scenario, fails=True)
    assert output == "Error: --mapping is of a --trace; there is none\n"


UNUSED = {
    ("--nodes", "x", "--mixed", "x"): "give either --nodes and --pods, or --snapshot and --jobs",
    ("--nodes", "x", "--jobs", "x"): "give either --nodes and --pods, or --snapshot and --jobs",
    ("--snapshot", "x", "--jobs", "x", "--departures"): "--departures draws jobs from --pods",
    ("--nodes", "x", "--pods", "x", "--adopt"): "--adopt is of a --snapshot; there is none",
}


@pytest.mark.parametrize("options", UNUSED)
def test_an_option_that_would_do_nothing_is_refused(options):
    assert UNUSED[options] in said("replay", *options, "--policies", "best-fit", fails=True)


def test_a_file_that_is_read_is_not_overwritten(scenario):
    before = scenario.read_text()
    given = ("run", scenario, "--policies", "first-fit", "-q", "--json")
    output = said(*given, scenario.parent / "." / scenario.name, fails=True)
    assert f"--json would overwrite {scenario.name}, which is read; name another" in output
    assert scenario.read_text() == before


def test_a_file_that_cannot_be_written_is_an_error(scenario):
    output = said(
        "run", scenario, "--policies", "best-fit", "-q", "--json", "/dev/full", fails=True
    )
    assert output == "Error: what was found: No space left on device\n"


def test_a_full_output_device_is_an_error():
    command = (sys.executable, "-m", "gpupack_simulator", "compare", CLASSROOM)
    shell = f"{shlex.join(map(str, command))} --policies best-fit > /dev/full"
    ran = run_process(["bash", "-c", shell])
    assert ran.returncode == 74
    assert ran.stderr.splitlines()[-1] == (
        "gpupack-simulator: stdout cannot be written: No space left on device"
    )


@pytest.mark.parametrize("more", [("--demand", 1e9), ("--departures", "--load", 1e9)])
def test_more_jobs_than_memory_holds_are_refused(files, more):
    output = said(
        *("replay", "--nodes", files / "nodes.csv", "--pods", files / "pods.csv"),
        *("--policies", "best-fit", "--seeds", 1, "-q", "-j", 1, *more),
        fails=True,
    )
    assert "the most are 5,000,000" in output


def test_plotting_libraries_are_loaded_only_when_needed():
    loaded = "import sys, gpupack_simulator.cli; print({'matplotlib', 'jinja2'} & set(sys.modules))"
    done = run_process([sys.executable, "-c", loaded])
    assert done.stdout == "set()\n", done.stderr
