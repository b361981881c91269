# SPDX-License-Identifier: Apache-2.0
"""Table and figure of docs/queueing/measurements.md, and the command that writes them."""

import importlib
import json
import pathlib
import re
import shlex
import shutil
import sys

import pytest
from alike import assert_alike, assert_same_picture
from processes import run_process

ROOT = pathlib.Path(__file__).parents[3]
GUIDE = (ROOT / "docs/queueing/measurements.md").read_text()
(COMMAND,) = re.findall(r"^python (benchmarks/queueing\.py .*)$", GUIDE, re.MULTILINE)
SMALL = (
    *("--pods", "40", "--nodes-every", "1", "--nodes", "1"),
    *("--days", "2", "--warm-up", "0.5", "--seeds", "2"),
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,T4\nn2,64000,262144,4,T4\n"
HEAD = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
)
START = 115 * 86_400


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("queueing_report")


@pytest.fixture
def kept(report):
    return json.loads((ROOT / report.REPORT).read_text())


def test_the_table_is_what_the_report_says(report, kept):
    assert_alike(GUIDE, report.replaced(GUIDE, report.MARKS, report.table(kept)))


def test_the_picture_is_what_the_report_says(report, kept):
    assert_same_picture(report.drawn(kept), (ROOT / report.PICTURE).read_text())


def pods():
    """Yield a trace with a pod a minute, ten minutes each, of two classes, and one earlier pod."""
    yield f"old,1000,1,1,1000,,LS,Running,0,{START * 2},0\n"
    for n in range(50):
        at, qos = START + 60 * n, ("LS", "BE")[n % 3 == 0]
        milli, gpus = (300, 1) if n % 5 == 0 else (1000, 1 + n % 4)
        yield f"p{n},1000,1,{gpus},{milli},,{qos},Running,{at},{at + 600},{at}\n"


@pytest.mark.timeout(300)
def test_the_documented_command_makes_report_table_and_picture(report, tmp_path):
    (tmp_path / report.DOCUMENT).parent.mkdir(parents=True)
    shutil.copy(ROOT / report.DOCUMENT, tmp_path / report.DOCUMENT)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces/openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "traces/openb_pod_list_default.csv").write_text(HEAD + "".join(pods()))
    command = shlex.split(COMMAND.replace("FOLDER", "traces"))
    done = run_process(
        [sys.executable, ROOT / command[0], *command[1:], *SMALL], cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / report.REPORT).read_text())
    openb, drawn = made["workloads"]["openb"], made["workloads"]["philly-style"]
    assert (openb["gpus"], openb["made"]["0"]["pods"], openb["tenants"]) == (6, 40, 2)
    assert openb["offered_load"]["0"] == pytest.approx(1, abs=0.001)
    assert (drawn["gpus"], list(drawn["made"])) == (8, ["0", "1"])
    queues = ["FIFO", "backfill", "fair share, no preemption", "fair share"]
    assert list(openb["queues"]) == list(drawn["queues"]) == queues
    for found in (openb, drawn):
        for queue in queues[:3]:
            assert [run["preemptions"] for run in found["queues"][queue].values()] == [0] * len(
                found["made"]
            )
    assert_alike(report.table(made), done.stdout.strip())
    assert report.table(made) in (tmp_path / report.DOCUMENT).read_text()
    assert "<svg" in (tmp_path / report.PICTURE).read_text()
