# SPDX-License-Identifier: Apache-2.0
"""What helm prints after an install; `helm template` leaves it out, so a ConfigMap carries it."""

import shutil

import pytest
import yaml

from gpupack_devcluster.build import KUBERNETES

NOTES = """
apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data: {notes: {{ tpl (.Files.Get "files/NOTES.txt") . | quote }}}
"""
PRIVATE = 'image.pullSecrets=[{"name":"first"},{"name":"second"}]'


@pytest.fixture
def notes(helm, chart_copy):
    """The text with these values."""
    shutil.copy(chart_copy / "templates/NOTES.txt", chart_copy / "files/NOTES.txt")
    (chart_copy / "templates/notes.yaml").write_text(NOTES)

    def shown(*values):
        sets = [f"--set-json={value}" for value in ('image.registry="r.example"', *values)]
        done = helm(
            "template",
            "gpupack",
            str(chart_copy),
            "--namespace=system",
            f"--kube-version={KUBERNETES}",
            "--show-only=templates/notes.yaml",
            *sets,
        )
        assert done.returncode == 0, done.stderr
        return yaml.safe_load(done.stdout)["data"]["notes"]

    return shown


def test_the_credentials_of_a_private_registry_go_where_the_first_job_runs(notes):
    text = notes(PRIVATE)
    before, _, after = text.partition("metadata: {name: hello}")
    assert "kubectl get gpujobs" in after
    assert "for namespace in default gpupack-acceptance; do" in before
    for name in ("first", "second"):
        assert f"--namespace=system get secret {name} -o go-template=" in before
        assert f"--namespace=$namespace create secret generic {name} " in before
    assert """-o go-template='{{index .data ".dockerconfigjson" | base64decode}}' |""" in before


def test_without_burn_ins_their_namespace_is_not_named(notes):
    text = notes(PRIVATE, "acceptance.enabled=false")
    assert "for namespace in default; do" in text
    assert "burn-ins" not in text


def test_a_registry_that_asks_for_nothing_needs_no_copies(notes):
    assert "create secret" not in notes()
