# SPDX-License-Identifier: Apache-2.0
"""The attack on memory: its pods, and the conditions for valid figures."""

import importlib
import json
import pathlib
import subprocess
import types

import pytest

ROOT = pathlib.Path(__file__).parents[3]
GOOD = {
    "restarts": {"extender": 0},
    "admitted": {"flood": 2, "large": 3, "gpus": 170, "terms": 40},
    "filter_calls": 12.0,
    "placed": 100,
}


@pytest.fixture
def hostile(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("hostile_memory")


class Admission:
    """A tenant whose pods are refused above a number of GPUs."""

    def __init__(self, max_gpus):
        self.max_gpus, self.calls = max_gpus, []
        self.kube = types.SimpleNamespace(namespace="hostile")

    def kubectl(self, *arguments, stdin):
        self.calls.append(arguments)
        limits = json.loads(stdin)["spec"]["containers"][0]["resources"]["limits"]
        refused = int(limits.get("gpupack.dev/gpu", 0)) > self.max_gpus
        return subprocess.CompletedProcess([], int(refused), "", "too many" * refused)


def test_attacks_use_the_largest_size_that_admission_accepts(hostile):
    admission = Admission(max_gpus=1024)
    attacker = hostile.Attacker(admission)
    sizes = attacker.letters, attacker.gpus, attacker.terms
    assert sizes == (hostile.LETTERS, 1024, hostile.TERMS)
    path = "/api/v1/namespaces/hostile/pods"
    assert {call[:3] for call in admission.calls} == {("create", "--raw", f"{path}?dryRun=All")}
    attacker.create("large", hostile.large("large", attacker.letters))
    assert admission.calls[-1][:3] == ("create", "--raw", path)


def test_a_round_counts_created_pods_and_deletes_those_of_the_round_before(hostile):
    class Quota:
        kube, calls = types.SimpleNamespace(namespace="hostile"), []

        def kubectl(self, *arguments, stdin=None):
            self.calls.append(arguments)
            created = "pod/a created\npod/b created\n" if "--raw" not in arguments else ""
            return subprocess.CompletedProcess([], 0, created, "exceeded quota")

    attacker = hostile.Attacker(Quota())
    attacker.round(7)
    assert attacker.admitted == {"large": 1, "gpus": 2, "terms": 2}
    assert attacker.refused == {"gpus": "exceeded quota", "terms": "exceeded quota"}
    assert attacker.tenant.calls[-1][:3] == ("delete", "pod", "--selector=round=6")


@pytest.mark.parametrize("allowed", [0, 1, 2, 99, 100])
def test_the_largest_admitted_count_is_found(hostile, allowed):
    assert hostile.largest(lambda count: count <= allowed, 100) == allowed


def test_a_run_with_every_attack_admitted_passes(hostile):
    assert not hostile.failures(GOOD)


@pytest.mark.parametrize(
    "change",
    [
        {"restarts": {"extender": 1}},
        {"admitted": {"flood": 2, "large": 3, "gpus": 170}},
        {"filter_calls": 0.0},
        {"placed": 0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_run_without_valid_figures_fails(hostile, change):
    assert len(hostile.failures(GOOD | change)) == 1


def test_only_calls_between_two_scrapes_count(hostile):
    text = 'gpupack_extender_call_seconds_bucket{le="+Inf",verb="filter"} %s'
    before, after = (hostile.filter_buckets(text % count) for count in ("3.0", "8.0"))
    assert hostile.calls(before, after) == 5
