# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/rest-api.md do what they say, one after the other in one shell."""

import json
import os
import pathlib
import re
import subprocess

import pytest
from harness import ROOT, kubectl_binary, wait_for

TEXT = (ROOT / "docs/rest-api.md").read_text()


def commands(title):
    """The blocks of a section."""
    section = re.search(rf"^## {title}\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


COMMANDS = commands("Calling it")
NAMESPACE = "team-a"
"""As the page has it."""


@pytest.fixture
def shell(kube, tmp_path):
    """Run commands as a user that copies them; return their output."""
    kubectl = str(pathlib.Path(kubectl_binary()).parent)
    added = {"KUBECONFIG": str(kube.kubeconfig), "PATH": f"{kubectl}:{os.environ['PATH']}"}

    def run(*commands):
        text = "\n".join(("set -euo pipefail", "trap 'kill $!' EXIT", *commands))
        output = tmp_path / "said"
        with output.open("w") as file:
            done = subprocess.run(
                ["bash", "-c", text.replace(NAMESPACE, kube.namespace)],
                cwd=tmp_path,
                env=os.environ | added,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=120,
                check=False,
            )
        assert done.returncode == 0, output.read_text()
        return output.read_text()

    return run


def test_the_commands_of_the_page_allocate_and_release_a_gpu(kube, shell):
    assert len(COMMANDS) == 3
    said = [
        json.JSONDecoder().raw_decode(line)[0]
        for line in shell("\necho\n".join(COMMANDS)).splitlines()
        if line.startswith("{")
    ]
    status, jobs, made, held, own = said
    assert status["total_nodes"] > 0
    assert jobs["jobs"] == []
    assert made["allocation_id"] == held["allocation_id"] == own["allocation_id"]
    assert made["allocation_id"].startswith(f"{kube.namespace}/allocation-")
    wait_for(lambda: not kube.gpujobs(), seconds=60, what="the GPUJob is gone")


def test_the_commands_of_the_page_call_with_the_kubeconfigs_certificate(shell):
    (script,) = commands("With a client certificate")
    said = shell(script)
    assert json.loads(said[said.index("{") :])["total_nodes"] > 0
