# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import pathlib
import re
import typing

import pytest
import yaml

from gpupack_crds.gpunode import Health
from gpupack_placement import POLICIES

CHART = pathlib.Path(__file__).parents[3] / "charts/gpupack"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def resolved(schema):
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    return (SCHEMA["$defs"][name] | schema) if name else schema


def fields(schema, path=""):
    """Yield every property of a schema with its dotted path; follow references."""
    for name, field in resolved(schema).get("properties", {}).items():
        yield f"{path}.{name}", resolved(field)
        yield from fields(field, f"{path}.{name}")
    if "items" in resolved(schema):
        yield f"{path}[]", resolved(resolved(schema)["items"])
        yield from fields(resolved(schema)["items"], f"{path}[]")


FIELDS = dict(fields(SCHEMA))
FREE = (
    ".global",
    ".nodeSelector",
    "Affinity",
    ".requests",
    ".limits",
    ".demandForecast",
    ".matchLabels",
    ".parameters",
    ".vendors",
    ".prices",
    ".correctThreadPercentages",
    ".excludedNodes",
    ".monitoring.labels",
    ".dashboard.labels",
)
"""Maps with keys of the user or of Kubernetes."""


def test_every_value_has_a_description():
    assert [path for path, field in FIELDS.items() if not field.get("description")] == []


def test_objects_accept_only_keys_that_the_chart_reads():
    objects = {path for path, field in FIELDS.items() if field.get("type") == "object"}
    open_objects = {
        path for path in objects if FIELDS[path].get("additionalProperties") is not False
    }
    assert SCHEMA["additionalProperties"] is False
    assert {path for path in open_objects if not path.endswith(FREE)} == set()


def keys(values, path=""):
    for name, value in values.items():
        yield f"{path}.{name}"
        if isinstance(value, dict) and not f"{path}.{name}".endswith(FREE):
            yield from keys(value, f"{path}.{name}")


def test_every_value_of_the_schema_is_in_the_values_file():
    inner = ("[]", ".affinity.", ".global", ".requests", ".limits")
    expected = {path for path in FIELDS if not any(part in path for part in inner)}
    assert {path for path in keys(VALUES) if not path.endswith(FREE[3:5])} == expected


def test_every_value_of_the_values_file_has_a_comment():
    lines = (CHART / "values.yaml").read_text().splitlines()
    explained_by_parent = {"image", "repository", "registry", "resources", "requests", "limits"}
    explained_by_parent |= {"priorityClassName", "nodeSelector", "tolerations", "affinity"}
    explained_by_parent |= {"kubeScheduler", "extender", "leaderElection", "simulated"}
    explained_by_parent |= {"crds", "admission", "networkPolicy"}
    explained_by_parent |= {key for row in VALUES["vendors"].values() for key in row}
    explained_by_parent |= VALUES["vendors"].keys()
    undocumented = [
        line
        for before, line in itertools.pairwise(lines)
        if (name := line.strip().partition(":")[0]).isidentifier()
        and name not in explained_by_parent
        and not before.strip().startswith("#")
    ]
    assert undocumented == []


def test_every_policy_is_valid_as_the_default_policy():
    pattern = FIELDS[".scheduler.policy"]["pattern"]
    for policy in (*POLICIES, "default", "0.7*fgd+0.3*best-fit"):
        assert re.fullmatch(pattern, policy)


def test_health_values_of_simulated_gpus_match_the_api():
    grades = FIELDS[".agent.simulated.nodes[].devices[].health"]["enum"]
    assert grades == list(typing.get_args(Health))


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("unknown=1", "additional properties 'unknown' not allowed"),
        ("agent.inventry=1", "additional properties 'inventry' not allowed"),
        ("scheduler.extender.image.tag=1", "additional properties 'tag' not allowed"),
        ('scheduler.mode="decisve"', "'decisive', 'advisory'"),
        ('scheduler.policy="fastest"', "at '/scheduler/policy': 'fastest' does not match pattern"),
        ('image.pullPolicy="never"', "'IfNotPresent', 'Always', 'Never'"),
        ('cost.prices={"2 x H100": 1}', 'such as "H100"'),
        ('cost.prices={"H100": -1}', "minimum: got -1, want 0"),
        (
            'cost.prices={"nvidia.com/gpu": 1}',
            "at '/cost/prices': additional properties 'nvidia.com/gpu' not allowed",
        ),
        ("cost.retentionDays=0", "minimum: got 0, want 1"),
        ("cost.enabled=true,api.enabled=false", "cost.enabled needs api.enabled"),
        ('image.registry=""', "set image.registry to the registry of your images"),
        ('image.registry="a/"', "does not match pattern"),
        ("scheduler.extender.staleAfterSeconds=74", "minimum: got 74, want 75"),
        ('observedResources=["gpu"]', "does not match pattern"),
        (
            'observedResources=["gpupack.dev/gpu"]',
            "observedResources: gpupack.dev/gpu is a resource of gpupack's own",
        ),
        (
            'observedResources=["requests.example.org/gpu"]',
            "observedResources: Kubernetes reserves the name requests.example.org/gpu",
        ),
        (
            'vendors.mine.resources=["example.kubernetes.io/gpu"]',
            "vendors.mine.resources: Kubernetes reserves the name example.kubernetes.io/gpu",
        ),
        ('observedResources=["nvidia.com/gpu","nvidia.com/gpu"]', "items at 0 and 1 are equal"),
        ('vendors.amd.resource="amd.com/gpu"', "additional properties 'resource' not allowed"),
        ('vendors.amd.library="rocm-smi"', "'', 'nvml', 'amdsmi'"),
        ('vendors.mine={"models": []}', "missing property 'resources'"),
        ('vendors.amd.pciVendor="0x1002"', "does not match pattern"),
        ("scheduler.replicas=0", "minimum: got 0, want 1"),
        ("maxObjectMib=15", "minimum: got 15, want 16"),
        ("maxObjectMib=1025", "maximum: got 1,025, want 1,024"),
        ("metricsPort=65536", "maximum: got 65,536, want 65,535"),
        ("admission.maxPriority=-1", "minimum: got -1, want 0"),
        ('admission.protectHosts.hostPaths=["dev"]', "does not match pattern"),
        ('admission.protectHosts.exemptNamespaces=["A"]', "does not match pattern"),
        ("operator.bindTimeoutSeconds=90000", "maximum: got 90,000, want 86,400"),
        ("agent.preStartWaitSeconds=0", "minimum: got 0, want 1"),
        ('agent.maxUnavailable="0%"', "does not match pattern"),
        ('agent.tolerations=[{"key":"a","efect":"b"}]', "properties 'efect' not allowed"),
        (
            'agent.simulated.nodes=[{"match":"*","devices":[{"model":"H200"}]}]',
            "missing property 'memoryMiB'",
        ),
        ('agent.inventory="simulated"', "agent.simulated.nodes lists no GPUs: add an entry"),
        (
            "scheduler.kubeScheduler.leaderElection.leaseDurationSeconds=10",
            "leaseDurationSeconds (10) must be more than renewDeadlineSeconds (10)",
        ),
        (
            "operator.bindTimeoutSeconds=120",
            "extenderTimeoutSeconds (180) must be more than 222, the time that",
        ),
        (
            'monitoring.enabled=true,monitoring.interval="1m",monitoring.scrapeTimeout="90s"',
            "monitoring.scrapeTimeout (90s) is more than monitoring.interval (1m)",
        ),
        (
            'queue.default.gpus=[{"model": "A", "borrowingLimit": 1}, {"model": "A"}]',
            "queue.default.gpus: model A is listed twice",
        ),
        (
            'networkPolicy.metricsFrom=[{"namespaceSelector": {"matchLabel": {"a": "b"}}}]',
            "additional properties 'matchLabel' not allowed",
        ),
        ("networkPolicy.metricsFrom=[{}]", "minProperties: got 0, want 1"),
        ('shares.correctThreadPercentages={"A": null}', "got null, want array"),
        ('shares.correctThreadPercentages={"A": [[5]]}', "minItems: got 1, want 2"),
        ('shares.correctThreadPercentages={"A": [[0, 5]]}', "minimum: got 0, want 1"),
        (
            'shares.correctThreadPercentages={"A": [[9, 5]]}',
            "the ranges of A are not in ascending order: [[9,5]]",
        ),
        (
            'shares.correctThreadPercentages={"A": [[5, 9], [7, 12]]}',
            "the ranges of A are not in ascending order",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_a_reason(render, value, complaint):
    assert complaint in render(value).error
