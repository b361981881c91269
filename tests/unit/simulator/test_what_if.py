# SPDX-License-Identifier: Apache-2.0
"""The command what-if."""

import json

import pytest
from click.testing import CliRunner
from simulator_builders import node

from gpupack_placement import Cluster, Grant, Holder, NodeName, Placement, snapshot
from gpupack_simulator.cli import main
from gpupack_terminal.screens import Size

SCENARIO = """
timeUnit: s
queue: {preemption: {minRuntime: 0, retry: 0}}
nodes: [{name: a, gpus: 4, model: GPU}]
jobs:
  - {name: guest, tenant: guest, gpus: 4, duration: 1000}
  - {name: mine, tenant: owner, gpus: 4, arrival: 100, duration: 50}
"""
QUOTAS = 'quotas: [{tenant: owner, gpus: {"*": 4}}]\n'


@pytest.fixture
def files(tmp_path):
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    (tmp_path / "new.yaml").write_text(QUOTAS)
    (tmp_path / "old.yaml").write_text('quotas: [{tenant: guest, gpus: {"*": 4}}]\n')
    return tmp_path


def said(*arguments, fails=False):
    given = ["what-if", *map(str, arguments), "--policy", "first-fit"]
    result = CliRunner().invoke(main, given)
    assert (result.exit_code != 0) is fails, result.output
    return result.output


def figures(files, *arguments):
    said(*arguments, "--quotas", files / "new.yaml", "-q", "--json", files / "out.json")
    return json.loads((files / "out.json").read_text())


def test_a_what_if_shows_waits_and_preemption_cost_of_a_reclaiming_quota(files):
    found = figures(files, files / "scenario.yaml")
    waits = {
        side: {
            of: figures_of["wait_mean_seconds"] for of, figures_of in found[side]["tenants"].items()
        }
        for side in ("today", "proposed")
    }
    assert waits == {
        "today": {"guest": 0, "owner": 900},
        "proposed": {"guest": 50, "owner": 0},
    }
    lost = 4 * 100 / 3600
    assert [found[side]["preemptions"] for side in ("today", "proposed")] == [0, 1]
    assert found["today"]["lost_to_preemption_gpu_hours"] == 0
    assert found["proposed"]["lost_to_preemption_gpu_hours"] == pytest.approx(lost, abs=1e-6)
    assert found["proposed"]["tenants"]["guest"]["preemptions"] == 1
    assert found["proposed"]["fairness_jain_mean"] == pytest.approx(1, abs=0.02)
    assert found["today"]["fairness_jain_mean"] == pytest.approx(0.5, abs=0.02)
    assert found["parameters"]["quotas_before"] == "none"


def test_current_quotas_may_be_in_a_file_or_in_the_scenario(files):
    before = figures(files, files / "scenario.yaml", "--quotas-before", files / "old.yaml")
    assert before["parameters"]["quotas_before"] == "old.yaml"
    (files / "scenario.yaml").write_text(SCENARIO + QUOTAS)
    within = figures(files, files / "scenario.yaml")
    assert within["parameters"]["quotas_before"] == "scenario"
    assert within["today"]["tenants"] == within["proposed"]["tenants"]
    assert within["today"]["preemptions"] == 1


def test_the_terminal_has_tables_and_what_would_have_changed_in_words(files):
    output = said(files / "scenario.yaml", "--quotas", files / "new.yaml")
    assert "Waits by tenant" in output
    assert "fairness, mean" in output
    text = " ".join(output.split())
    assert "jobs wait 25.0 s on average instead of 450.0 s" in text
    assert "shorter for 1 of 2 tenants, longer for 1" in text
    assert "Jobs are preempted 1 instead of 0 times, and 0.1 instead of 0.0 GPU-hours" in text


def test_a_folder_takes_the_report_with_fairness_over_time_as_its_first_picture(files):
    out = files / "out"
    said(files / "scenario.yaml", "--quotas", files / "new.yaml", "-q", "--out", out)
    report = (out / "report.html").read_text()
    assert "What would have changed under the proposed quotas?" in report
    assert report.index("<strong>Fairness over time") < report.index("<strong>Allocated GPU")
    assert {path.stem for path in (out / "plots").iterdir()} >= {"fairness", "waits"}
    assert (out / "runs/proposed/0-jobs.csv").exists()
    assert json.loads((out / "results.json").read_text())["proposed"]["preemptions"] == 1


def test_jobs_may_come_from_a_trace_whose_column_names_the_tenant(files):
    (files / "trace.csv").write_text("j,at,lasts,g,vc\na,0,1000,4,guest\nb,100,50,4,owner\n")
    (files / "map.yaml").write_text(
        "columns: {id: j, submitted: at, duration: lasts, gpus: g, tenant: vc}\n"
    )
    head, _, _ = SCENARIO.partition("jobs:")
    (files / "nodes.yaml").write_text(head)
    found = figures(
        files, files / "nodes.yaml", "--trace", files / "trace.csv", "--mapping", files / "map.yaml"
    )
    assert found["proposed"]["tenants"]["owner"]["wait_mean_seconds"] == 0
    assert found["parameters"]["trace"] == "trace.csv"


def test_a_snapshot_is_a_cluster_whose_held_gpus_stay_held(files):
    cluster = Cluster([node("a")])
    device = cluster.node(NodeName("a")).devices[0]
    held = Placement(NodeName("a"), (Grant(device.uuid, 1000, device.memory),))
    cluster.take(Holder("notebook"), held)
    (files / "state.json").write_text(json.dumps(snapshot.dump(cluster)))
    (files / "jobs.yaml").write_text(
        "jobs:\n- {name: g, tenant: guest, gpus: 1, count: 4, duration: 600}\n"
        "- {name: o, tenant: owner, gpus: 2, arrival: 100, duration: 50}\n"
    )
    found = figures(files, "--snapshot", files / "state.json", "--jobs", files / "jobs.yaml")
    assert found["time_unit"] == "s"
    assert found["today"]["tenants"]["owner"]["wait_mean_seconds"] == 500
    assert found["proposed"]["tenants"]["owner"]["wait_mean_seconds"] == 0
    assert found["proposed"]["preemptions"] == 2


REFUSED = {
    (): "give a SCENARIO or a --snapshot: one of them is the cluster",
    ("S", "--snapshot", "x"): "give a SCENARIO or a --snapshot",
    ("S", "--jobs", "x"): "--jobs is of a --snapshot; there is a SCENARIO",
    ("S", "--adopt"): "--adopt is of a --snapshot; there is a SCENARIO",
    ("--snapshot", "x"): "a --snapshot needs jobs: --jobs JOBS.yaml or --trace",
    ("S", "--tenants", "user"): "--tenants is of an SWF --trace; there is none",
}


@pytest.mark.parametrize("options", REFUSED)
def test_options_that_do_not_go_together_are_refused(files, options):
    given = [files / "scenario.yaml" if option == "S" else option for option in options]
    assert REFUSED[options] in said(*given, "--quotas", files / "new.yaml", fails=True)


DOUBTFUL = {
    "quotas: [{tenant: onwer}]": "there are no jobs of onwer",
    "quotas: [{tenant: owner, cohort: lap}]": (
        "there is no cohort lap; one without limits counts instead"
    ),
    "cohorts: [{name: lab, parent: uni}]": "there is no cohort uni;",
    "cohorts: [{name: lab}]": "no namespace is in cohort lab",
    "quotas: [{tenant: owner, gpus: {B200: 4}}]": "no GPU counts as B200; there are GPU",
    'quotas: [{tenant: owner, gpus: {"*": 3, GPU: 2}}, {tenant: guest, gpus: {GPU: 3}}]': (
        "5 GPUs of GPU are promised, and there are 4"
    ),
    "quotas: [" + ", ".join(f"{{tenant: t{n}}}" for n in range(8)) + "]": (
        "there are no jobs of t0, t1, t2, t3, t4 and 3 more"
    ),
}


@pytest.mark.parametrize("quotas", DOUBTFUL)
def test_quotas_without_an_effect_cause_a_warning_and_are_simulated(files, quotas):
    (files / "new.yaml").write_text(f"{quotas}\n")
    output = said(files / "scenario.yaml", "--quotas", files / "new.yaml")
    assert f"Warning: new.yaml: {DOUBTFUL[quotas]}" in output
    assert "Under the proposed quotas" in output


def test_quotas_that_name_what_there_is_are_not_warned_of(files):
    (files / "new.yaml").write_text(
        "cohorts: [{name: lab}]\nquotas: [{tenant: owner, cohort: lab, gpus: {gpu: 4}}]\n"
    )
    given = ("--quotas", files / "new.yaml", "--quotas-before", files / "old.yaml")
    assert "Warning" not in said(files / "scenario.yaml", *given)


def test_a_snapshot_has_the_models_that_quotas_may_name(files):
    (files / "state.json").write_text(json.dumps(snapshot.dump(Cluster([node("a")]))))
    (files / "jobs.yaml").write_text("jobs: [{name: g, tenant: owner, gpus: 1, duration: 600}]\n")
    (files / "new.yaml").write_text("quotas: [{tenant: owner, gpus: {B200: 4}}]\n")
    given = ("--snapshot", files / "state.json", "--jobs", files / "jobs.yaml")
    assert "no GPU counts as B200; there are " in said(*given, "--quotas", files / "new.yaml")


def test_a_narrow_terminal_gets_every_figure(files, monkeypatch):
    monkeypatch.setattr("gpupack_terminal.screens.size_of", lambda _stream: Size(80))
    monkeypatch.setenv("NO_COLOR", "1")
    output = said(files / "scenario.yaml", "--quotas", files / "new.yaml")
    assert [line.split()[-1] for line in output.splitlines() if "proposed  " in line][-1] == "2"


def test_errors_of_quotas_name_file_and_line(files):
    (files / "new.yaml").write_text("quotas:\n- {tenant: owner, gpus: {H100: lots}}\n")
    output = said(files / "scenario.yaml", "--quotas", files / "new.yaml", fails=True)
    assert "Error: new.yaml:2: quotas[0].gpus.H100: " in output
    assert "it is 'lots'" in output or "got `str`" in output
