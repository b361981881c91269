# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest

from gpupack_devcluster.build import KUBERNETES

ROOT = pathlib.Path(__file__).parents[3]
CHART = ROOT / "charts/gpupack"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
GPUS = 'agent.simulated.nodes=[{"match":"*","devices":[{"model":"A \\"b\\": #1","memoryMiB":1}]}]'
VALUES = {
    "defaults": ((), ()),
    "dev cluster": ((), ("values-devcluster.yaml",)),
    "everything on": (
        (
            'scheduler.mode="advisory"',
            "scheduler.replicas=3",
            "networkPolicy.enabled=true",
            'networkPolicy.metricsFrom=[{"namespaceSelector":{}}]',
            'image.pullSecrets=[{"name":"a"}]',
            'operator.affinity={"nodeAffinity":{}}',
            'scheduler.nodeSelector={"a":"true"}',
            "agent.maxUnavailable=3",
            'observedResources=["nvidia.com/gpu","amd.com/gpu"]',
            'admission.protectHosts.exemptNamespaces=["kube-system","monitoring"]',
            "workloads.nvlinkMulticast=true",
            "metricsPort=9100",
            "api.enabled=true",
            "cost.enabled=true",
            'cost.storage={"size":"4Gi","storageClassName":"fast"}',
            'cost.prices={"A100-80GB":2.1,"*":1}',
        ),
        (),
    ),
    "everything off": (
        (
            "crds.install=false",
            "observedResources=[]",
            "admission.protectDevices=false",
            "admission.checkPods=false",
            "admission.warnWorkloads=false",
            "admission.protectHosts.enabled=false",
            'scheduler.tls.existingSecret="mine"',
            'operator.priorityClassName=""',
            "agent.tolerations=[]",
            "operator.resources={}",
            "scheduler.extender.resources=null",
        ),
        (),
    ),
    "odd text": (
        (
            'agent.inventory="simulated"',
            GPUS,
            'image.registry="mirror.example:5000/deep/path"',
            'image.tag="1e3"',
            'agent.nodeSelector={"yes":"no","1":"2"}',
            "agent.scanSeconds=0.5",
        ),
        (),
    ),
}


@pytest.mark.parametrize(("values", "files"), VALUES.values(), ids=VALUES)
def test_every_object_is_valid_for_its_schema(render, conform, values, files):
    rendered = render(*values, files=files)
    assert len(rendered.objects) > 20
    judged = conform(rendered.text)
    assert (judged.returncode, judged.stdout + judged.stderr) == (0, "")


def test_the_schemas_refuse_a_field_that_kubernetes_does_not_have(render, conform):
    text = render().text.replace("containerPort: 8443", "containerPrt: 8443")
    assert "additional properties 'containerPrt' not allowed" in conform(text).stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_valid_for_the_schemas(conform, example):
    judged = conform(example.read_text())
    assert (judged.returncode, judged.stdout + judged.stderr) == (0, "")


@pytest.mark.parametrize(("values", "files"), VALUES.values(), ids=VALUES)
def test_names_of_objects_are_unique(render, values, files):
    rendered = render(*values, files=files)
    documents = [part for part in rendered.text.split("\n---") if "\nkind: " in part]
    assert len(documents) == len(rendered.objects)


@pytest.mark.parametrize(
    "values", ["--set=image.registry=a", f"--values={CHART}/values-devcluster.yaml"]
)
def test_helm_lint_reports_nothing(helm, values):
    version = f"--kube-version={KUBERNETES}"
    linted = helm("lint", "--strict", "--quiet", version, str(CHART), values)
    assert (linted.returncode, linted.stdout.strip(), linted.stderr) == (0, "", "")
