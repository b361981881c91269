# SPDX-License-Identifier: Apache-2.0
"""Hosts are checked with the commands of docs/preflight.md."""

import json
import re
import subprocess

import pytest
from harness import ROOT, STATE, SYSTEM_NAMESPACE, cluster_kind

DOCUMENT = ROOT / "docs/preflight.md"
REGISTRY = "--set image.registry=registry.example.com"
OURS = "--set image.registry=docker.io --set image.tag=dev --set image.pullPolicy=Never"

pytestmark = pytest.mark.skipif(cluster_kind() != "devcluster", reason="knows the nodes' runtime")


@pytest.fixture(scope="module")
def applied(system):
    """The document's commands but the last, which comes afterwards; output by command's verb."""
    (block,) = re.findall(r"```sh\n(helm.*?)```", DOCUMENT.read_text(), re.DOTALL)
    commands = block.replace("\\\n", " ").replace(REGISTRY, OURS).strip().splitlines()
    environment = {
        "PATH": f"{STATE / 'bin'}:/usr/bin:/bin",
        "KUBECONFIG": str(STATE / "kubeconfig"),
        "HOME": "/nonexistent",
    }

    def typed(command):
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env=environment,
            cwd=ROOT,
            text=True,
            capture_output=True,
            check=False,
        )

    done = [typed(command) for command in commands[:-1]]
    yield done
    assert typed(commands[-1]).returncode == 0


def test_the_rollout_ends_where_every_host_passes_and_the_logs_tell_of_each(applied, cluster):
    assert [(each.returncode, each.stderr) for each in applied] == [(0, "")] * 3
    output = applied[-1].stdout
    for words in (
        "no NVIDIA GPU is installed",
        "containerd 2",
        "on, specs in",
        "accepts device plugins",
    ):
        assert output.count(words) == len(cluster.nodes()), words
    assert "/containerd.toml" in output
    assert "FAILURE" not in output


def test_its_pods_have_no_token_and_cannot_change_the_host(applied, system):
    assert applied
    query = ("--selector=app.kubernetes.io/component=preflight", "--output=json")
    pods = json.loads(system.kubectl("get", "pods", *query).stdout)["items"]
    name = pods[0]["metadata"]["name"]
    script = "ls /run/secrets/kubernetes.io/serviceaccount; touch /host/etc/gpupack"
    where = f"--namespace={SYSTEM_NAMESPACE}"
    done = system.kubectl("exec", where, name, "--", "sh", "-c", script)
    assert "serviceaccount': No such file" in done.stderr
    assert "Read-only file system" in done.stderr
