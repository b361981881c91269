# SPDX-License-Identifier: Apache-2.0
"""NOTES.txt, in a ConfigMap of a copy of the chart, because `helm template` does not print it."""

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
    """Render NOTES.txt with these values."""
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


def test_notes_copy_registry_credentials_to_the_namespace_of_the_first_job(notes):
    text = notes(PRIVATE)
    before, _, after = text.partition("metadata: {name: hello}")
    assert "kubectl get gpujobs" in after
    assert "for namespace in default gpupack-acceptance; do" in before
    for name in ("first", "second"):
        assert f"--namespace=system get secret {name} -o go-template=" in before
        assert f"--namespace=$namespace create secret generic {name} " in before
    assert """-o go-template='{{index .data ".dockerconfigjson" | base64decode}}' |""" in before


def test_notes_omit_the_namespace_of_burn_ins_without_burn_ins(notes):
    text = notes(PRIVATE, "acceptance.enabled=false")
    assert "for namespace in default; do" in text
    assert "burn-ins" not in text


def test_notes_copy_no_credentials_without_pull_secrets(notes):
    assert "create secret" not in notes()


def test_notes_say_that_network_policies_keep_prometheus_out(notes):
    on, peer = "monitoring.enabled=true", 'networkPolicy.metricsFrom=[{"podSelector":{}}]'
    assert "cannot reach the metrics of extender, operator and\nagents" in notes(on)
    assert "metricsFrom" not in notes(on, peer)
    assert "metricsFrom" not in notes(on, "networkPolicy.enabled=false")
