# SPDX-License-Identifier: Apache-2.0
"""The command line as a user has it: the installed command, in the user's folder."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
import yaml
from harness import ROOT, STATE, wait_for
from manifests import JUDGE_IMAGE

from gpupack_placement import load

SCRIPTS = pathlib.Path(sys.executable).parent
IMAGE = ("--image", JUDGE_IMAGE)
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


def environ(kubeconfig, **more):
    """Return the environment of a user with kubectl and the command on PATH."""
    path = f"{SCRIPTS}:{STATE / 'bin'}:{os.environ['PATH']}"
    return {"HOME": "/nonexistent", "PATH": path, "KUBECONFIG": str(kubeconfig), **more}


@pytest.fixture
def cli(kube, tmp_path):
    """Runs the command as the administrator, in the test's namespace and a folder of its own."""

    def run(*arguments, kubeconfig=kube.kubeconfig, stdin="", **more):
        return subprocess.run(
            [SCRIPTS / "gpupack", *map(str, arguments)],
            cwd=tmp_path,
            env=environ(kubeconfig, **more),
            input=stdin,
            text=True,
            capture_output=True,
            timeout=180,
            check=False,
        )

    run.folder = tmp_path
    run.here = ("-n", kube.namespace)
    return run


def as_account(kube, name, folder):
    """A kubeconfig of a service account: a token, and nothing else."""
    config = yaml.safe_load(kube.kubeconfig.read_text())
    token = kube.insist("create", "token", name).strip()
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    config["contexts"][0]["context"]["namespace"] = kube.namespace
    path = folder / f"{name}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def administrator(kube):
    """Create a token of a cluster admin, which also authenticates at the REST API."""
    kube.insist("create", "serviceaccount", "root")
    account = f"--serviceaccount={kube.namespace}:root"
    name = f"{kube.namespace}-root"
    kube.insist("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", account)
    yield {"GPUPACK_TOKEN": kube.insist("create", "token", "root").strip()}
    kube.insist("delete", "clusterrolebinding", name)


def one_line(done, status, *says):
    """It ended so, said this in one line, and showed no traceback."""
    assert done.returncode == status, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for text in says:
        assert text in done.stderr


def test_a_command_runs_as_a_job_and_shows_what_it_prints(kube, cli):
    (cli.folder / "train.py").write_text(
        "import os, pathlib, sys\n"
        "pathlib.Path('out').write_text('written')\n"
        "print('on', os.environ['GPUPACK_DEVICES'], sys.argv[1])\n"
    )
    command = ("--", "python3", "train.py", "an argument")
    done = cli("submit", *cli.here, "--name", "first", *IMAGE, "--script", "train.py", *command)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"on GPU-sim-\S+ an argument\n", done.stdout)
    assert "first: Succeeded" in done.stderr
    assert cli("logs", *cli.here, "first").stdout == done.stdout
    (config,) = json.loads(kube.insist("get", "configmaps", "first", "-o", "json"))["metadata"][
        "ownerReferences"
    ]
    assert (config["kind"], config["name"]) == ("GPUJob", "first")


def test_a_job_that_fails_ends_the_command_as_its_worker_ended(cli):
    failing = ("--", "python3", "-c", "print('oops'); raise SystemExit(7)")
    done = cli("submit", *cli.here, "--name", "fails", *IMAGE, *failing)
    assert (done.returncode, done.stdout) == (7, "oops\n"), done.stderr
    assert "gpupack: fails failed: " in done.stderr
    again = cli("logs", *cli.here, "fails", "-f")
    assert (again.returncode, again.stdout) == (7, "oops\n")


def test_log_lines_of_a_gang_name_their_worker(cli):
    command = ("--", "python3", "-c", "print('here')")
    done = cli("submit", *cli.here, "--workers", "2", *IMAGE, *command)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] here", "[1] here"]


def test_as_a_plugin_of_kubectl_it_is_the_same_command(kube):
    done = subprocess.run(
        ["kubectl", "gpupack", "nodes", "-o", "json"],
        env=environ(kube.kubeconfig),
        capture_output=True,
        text=True,
        check=True,
    )
    names = {node["name"] for node in json.loads(done.stdout)["nodes"]}
    assert names >= set(kube.nodes())


def test_a_pending_job_shows_the_reason(kube, cli, judged):
    kube.submit(judged.job("too-big", gpus=8, workers=9, seconds=1))
    kube.wait_reason("too-big", "Unsatisfiable")
    explained = cli("explain", *cli.here, "too-big")
    assert explained.returncode == 0, explained.stderr
    assert explained.stdout.startswith(f"{kube.namespace}/too-big is Pending: Unsatisfiable\n")
    assert "gang of 9 workers " in explained.stdout
    queued = json.loads(cli("queue", *cli.here, "-o", "json").stdout)["waiting"]
    assert [(each["name"], each["reason"]) for each in queued] == [("too-big", "Unsatisfiable")]
    listed = cli("jobs", *cli.here).stdout.splitlines()
    assert listed[0].split()[:3] == ["NAMESPACE", "NAME", "PHASE"]
    assert "\x1b" not in "".join(listed)


def test_ctrl_c_leaves_the_job_alone(kube, cli):
    submit = ("submit", *cli.here, "--name", "long", *IMAGE, "--", "python3", "-c")
    program = "import time; print('begun', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [SCRIPTS / "gpupack", *submit, program],
        env=environ(kube.kubeconfig),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout.readline() == "begun\n"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=30)
    assert running.returncode == 130, errors
    assert f"gpupack logs -f -n {kube.namespace} long" in errors
    # Its first line may come before the API server knows that its container runs.
    kube.wait_phase("long", "Running")


def test_a_log_that_is_followed_twice_starts_over_and_its_tail_is_shown(kube, cli):
    counting = "for i in range(5): print(i)"
    done = cli("submit", *cli.here, "--name", "counts", *IMAGE, "--", "python3", "-c", counting)
    assert done.stdout.split() == list("01234"), done.stderr
    assert cli("logs", *cli.here, "counts", "--tail", "2").stdout.split() == ["3", "4"]
    one_line(
        cli("logs", *cli.here, "counts", "--attempt", "2"), 66, "no attempt 2; its last one is 1"
    )


@pytest.mark.parametrize(
    ("manifest", "says"),
    [("", "has no GPUJob"), ("a: [1", "is not YAML"), ("kind: Pod", "has no GPUJob")],
)
def test_rubbish_is_no_question(cli, manifest, says):
    one_line(cli("what-if", *cli.here, "-f", "-", stdin=manifest), 65, says)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--min-memory", "much"), "spec.minMemory"),
        (("--env", "GPUPACK_DEVICES=all"), "set by gpupack; remove them"),
        (("--priority-class", "nosuch!"), "spec.priorityClassName"),
    ],
)
def test_a_refusal_of_the_api_server_is_one_line_and_leaves_no_objects(kube, cli, options, says):
    (cli.folder / "a.py").write_text("")
    done = cli("submit", *cli.here, *IMAGE, "--script", "a.py", *options, "--", "python3", "a.py")
    one_line(done, 65, says)
    left = json.loads(kube.insist("get", "gpujobs,configmaps", "-o", "json"))["items"]
    assert [each["metadata"]["name"] for each in left] == ["kube-root-ca.crt"]


def test_the_error_for_a_missing_object_is_one_line(cli):
    one_line(cli("explain", *cli.here, "nosuch"), 66, "nosuch")
    one_line(cli("logs", *cli.here, "nosuch"), 66, "nosuch")
    one_line(cli("gpu", "show", "nosuch"), 66, "nosuch")
    one_line(cli("gpu", "show", cli_node(cli), "99"), 66, "has no GPU '99'")


def cli_node(cli):
    """Name of a node whose GPUs are ours."""
    nodes = json.loads(cli("nodes", "-o", "json").stdout)["nodes"]
    return next(each["name"] for each in nodes if each["mode"] == "owned" and each["gpus"] == 8)


def test_a_tenant_uses_its_rights_and_is_refused_the_others(resident, kube, cli):
    tenant = {"kubeconfig": as_account(kube, "tenant", cli.folder)}
    done = cli("submit", *IMAGE, "--", "python3", "-c", "print('mine')", **tenant)
    assert (done.returncode, done.stdout) == (0, "mine\n"), done.stderr
    assert cli("jobs", **tenant).returncode == 0
    for refused in (
        ("jobs", "-A"),
        ("gpu", "cordon", "gpupack-1", "--reason", "mine"),
        ("drain", "gpupack-1", "--reason", "mine"),
        ("submit", "-n", "default", *IMAGE, "--", "true"),
    ):
        one_line(cli(*refused, **tenant), 77, "cannot", "request that permission")
    needed = "you may not read GPUNodes", "a ClusterRoleBinding to gpupack-view"
    one_line(cli("nodes", **tenant), 77, *needed)
    checked = cli("doctor", "-o", "json", **tenant)
    levels = {each["level"] for each in json.loads(checked.stdout)["findings"]}
    assert (checked.returncode, levels) == (0, {"ok", "skipped"}), checked.stdout


def test_the_error_for_an_unavailable_cluster_is_one_line(kube, cli):
    away = cli.folder / "away"
    away.write_text(re.sub(r"(server: https://[^:]+):\d+", r"\1:1", kube.kubeconfig.read_text()))
    for command in (("jobs",), ("doctor",), ("submit", *IMAGE, "--", "true"), ("top",)):
        one_line(cli(*command, kubeconfig=away), 69, "check that the cluster is up")


def test_names_of_other_users_send_no_terminal_commands(kube, cli, judged):
    """Reasons of maintenance are free text: their author could write into every terminal."""
    node = cli_node(cli)
    evil = "\x1b]0;owned\x07\x1b[2J\x1b[31mfan"
    assert cli("gpu", "cordon", node, "7", "--reason", evil).returncode == 0
    try:
        shown = cli("gpu", "show", node, "7")
        assert "fan" in shown.stdout
        assert "\x1b" not in shown.stdout
        assert "\x1b" not in cli("gpu", "show", node, "-o", "yaml").stdout
    finally:
        back = cli("gpu", "uncordon", node, "7")
    assert back.returncode == 0, back.stderr


def test_the_clusters_state_is_shown_as_bars_and_written_for_the_simulator(cli, administrator):
    shown = cli("top", "--once", **administrator)
    assert shown.returncode == 0, shown.stderr
    assert re.match(r"\d+ GPUs in \d+ nodes", shown.stdout)
    assert re.search(r"^gpupack-1 .*[█▄·x]{8} ", shown.stdout, re.MULTILINE)
    assert "\x1b" not in shown.stdout
    written = cli("snapshot", "-f", "cluster.json", **administrator)
    assert written.returncode == 0, written.stderr
    cluster = load(json.loads((cli.folder / "cluster.json").read_text()), strict=False)
    assert "gpupack-1" in cluster


def test_a_user_without_rights_takes_no_snapshot(resident, kube, cli):
    token = kube.insist("create", "token", "tenant").strip()
    one_line(cli("snapshot", GPUPACK_TOKEN=token), 77, "/snapshot")


def test_a_kubeconfig_with_a_client_certificate_alone_does_for_every_command(kube, cli):
    assert "client-certificate-data" in kube.kubeconfig.read_text()
    shown = cli("top", "--once")
    assert re.match(r"\d+ GPUs in \d+ nodes", shown.stdout), shown.stderr
    written = cli("snapshot", "-f", "cluster.json")
    assert written.returncode == 0, written.stderr
    job = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUJob",
        "metadata": {"name": "asked"},
        "spec": {"gpus": 1, "workers": 1, "workload": {"name": "matmul"}},
    }
    asked = cli("what-if", "-f", "-", "-o", "json", *cli.here, stdin=json.dumps(job))
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["outcome"] in {"Starts", "Waits"}
    job["spec"]["gpus"] = 0
    refused = cli("what-if", "-f", "-", *cli.here, stdin=json.dumps(job))
    one_line(refused, 65, "spec.gpus")
    assert kube.gpujobs() == []
    costs = cli("cost", "-A", "-o", "json")
    assert costs.returncode == 0, costs.stderr
    assert json.loads(costs.stdout)["total"] is not None
    assert "it accepts your credentials" in cli("doctor").stdout


def test_what_if_changes_nothing(kube, cli, administrator):
    job = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUJob",
        "metadata": {"name": "asked"},
        "spec": {"gpus": 8, "workers": 99, "workload": {"name": "matmul"}},
    }
    asked = ("what-if", *cli.here, "-f", "-", "-o", "json")
    done = cli(*asked, stdin=json.dumps(job), **administrator)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] in {"Waits", "Never"}
    assert kube.gpujobs() == []


@pytest.mark.alone
@pytest.mark.slow
def test_gpus_out_of_service_get_no_work_and_a_drained_node_is_empty(kube, cli, judged):
    """The test compares the GPUs of a job, so no other test may take GPUs at the same time."""
    first, second = (each for each in kube.nodes() if each.startswith("gpupack-"))
    try:
        for gpu in range(1, 8):
            assert cli("gpu", "cordon", first, str(gpu), "--reason", "fans").returncode == 0
        kube.submit(judged.job("two", gpus=2, seconds=600))
        kube.wait_phase("two", "Running")
        assert kube.gpujob("two")["status"]["nodes"] == second
        assert cli("gpu", "uncordon", first).returncode == 0
        drained = cli("drain", second, "--reason", "new driver", "--stop-in", "1s")
        assert drained.returncode == 0, drained.stderr
        assert f"{second} is empty" in drained.stderr
        moved = wait_for(
            lambda: job if (job := kube.gpujob("two"))["status"]["nodes"] == first else None,
            seconds=60,
            what="the job runs on the other node",
        )
        assert moved["status"]["attempts"][0]["outcome"] == "Preempted"
    finally:
        for node in (first, second):
            cli("gpu", "uncordon", node)
    for node in (first, second):
        shown = json.loads(cli("gpu", "show", node, "-o", "json").stdout)["gpus"]
        assert {each["state"] for each in shown} == {"Healthy"}


@pytest.mark.alone
@pytest.mark.slow
def test_a_sound_installation_is_called_sound_and_a_broken_part_is_named(cli, system):
    done = cli("doctor")
    assert done.returncode == 0, done.stdout
    system.scale("deployment", "gpupack-operator", 0)
    try:
        broken = wait_for(
            lambda: found if (found := cli("doctor", "--quiet")).returncode == 1 else None,
            seconds=60,
            what="the doctor finds what is broken",
        )
        assert re.search(
            r"^FAIL +parts: gpupack-operator is scaled to 0", broken.stdout, re.MULTILINE
        )
        assert "Traceback" not in broken.stderr
    finally:
        system.scale("deployment", "gpupack-operator", 2)
        system.insist("rollout", "status", "deployment/gpupack-operator", "--timeout=120s")


@pytest.mark.alone
@pytest.mark.slow
def test_the_commands_of_the_page_work_one_after_the_other(kube, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = (ROOT / "docs/cli.md").read_text()
    lines = [line for block in CONSOLE.findall(page) for line in block.splitlines()]
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    assert len(commands) > 20
    kubeconfig = tmp_path / "config"
    config = yaml.safe_load(kube.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = kube.namespace
    kubeconfig.write_text(yaml.safe_dump(config))
    for command in commands:
        done = subprocess.run(
            ["bash", "-uo", "pipefail", "-c", command],
            cwd=tmp_path,
            env=environ(kubeconfig),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
        assert "Traceback" not in done.stderr
