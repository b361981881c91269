# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_queue import Cohort, Limit, Quota
from gpupack_simulator import InvalidInput
from gpupack_simulator.inputs.quotafile import read_quotas


@pytest.fixture
def read(tmp_path):
    def reading(text):
        path = tmp_path / "quotas.yaml"
        path.write_text(text)
        return read_quotas(path)

    return reading


def test_quotas_and_cohorts_are_those_of_a_scenario(read):
    found = read(
        "cohorts: [{name: lab, gpus: {H100: 8}}]\n"
        "quotas:\n"
        '- {tenant: a, cohort: lab, weight: 2, gpus: {"*": {nominal: 2, lendingLimit: 1}}}\n'
    )
    assert found.quotas.quotas == (Quota("a", {"": Limit(2000, 1000)}, "lab", 2.0),)
    assert found.quotas.cohorts == (Cohort("lab", limits={"H100": Limit(8000)}),)
    assert (found.name, found.queue) == ("quotas.yaml", None)


def test_rules_of_the_queue_may_change_with_them(read):
    assert read("queue: {reserveAfter: 60}").queue.reserve_after == 60


BROKEN = {
    "nodes: []": "quotas.yaml:1: nodes: only quotas, cohorts and queue are expected here",
    "quotas:\n- tenant: a\n  gpus:\n    T4: 1\n    H100: -1": (
        "quotas.yaml:5: quotas[0].gpus.H100: Expected `float` >= 0.0; it is -1"
    ),
    "quotas:\n- {tenant: a}\n- {tenant: a}": (
        "quotas.yaml:3: quotas[1].tenant: there is an entry of a above"
    ),
    "cohorts:\n- {name: a}\n- {name: a}": "quotas.yaml:3: cohorts[1].name: there is an entry of a",
    "cohorts: [{name: a, parent: a}]": "quotas.yaml:1: cohorts: a cohort is above itself: a < a",
    "cohorts:\n" + "".join(f"- {{name: c{n}, parent: c{n + 1}}}\n" for n in range(2000)): (
        "cohorts: more than 32 cohorts are above cohort c0"
    ),
    "quotas: [{tenant: a, weight: 1.0e+308}]": "quotas[0]: the quota of a: weight 1e+308 is",
    "quotas: [{tenant: a, weight: -2}]": "quotas[0].weight: Expected `float` >= 0.0; it is -2",
    "quotas: [{tenant: a, gpus: {H100: {nominal: 2, lendingLimit: 8}}}]": (
        "quotas[0].gpus.H100: lendingLimit 8 is of the 2 promised GPUs; set it to no more"
    ),
    'quotas: [{tenant: a, gpus: {"": 1}}]': "quotas[0]: Expected `str` of length >= 1",
    "quotas: [{tenant: a, gpu: {}}]": (
        "quotas[0]: Object contains unknown field `gpu`; use tenant, cohort, weight, gpus"
    ),
    'quotas: [{tenant: "a\0"}]': (
        "quotas.yaml:1: is not YAML: it has the character 0x0; take it out"
    ),
    "queue: {calmness: 3}": "quotas.yaml:1: queue: Object contains unknown field `calmness`",
    "queue: {halfLife: .inf}": "quotas.yaml:1: queue: the half-life is without end",
    "apiVersion: gpupack.dev/v1beta1\nkind: GPUQuota\nspec: {}": (
        "quotas.yaml:1: apiVersion: manifests of Kubernetes are not read; write quotas: "
        "[{tenant: NAMESPACE, gpus: {MODEL: NUMBER}}]"
    ),
    "quotas: []\n---\nquotas: []": "quotas.yaml:2: another document begins; make them one",
    "[]": "quotas.yaml:1: expected named fields, got list",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_reported(read, text):
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert BROKEN[text] in str(caught.value)


def test_aliases_that_expand_beyond_the_limit_are_refused(read):
    """Merged, they would fill the memory: nine of the one before, nine times over."""
    merged = [f"- &a{n + 1} {{<<: [{', '.join([f'*a{n}'] * 9)}]}}" for n in range(9)]
    with pytest.raises(InvalidInput, match=r"quotas.yaml:\d+: its aliases stand for more than"):
        read("quotas:\n- &a0 {tenant: a}\n" + "\n".join(merged))
