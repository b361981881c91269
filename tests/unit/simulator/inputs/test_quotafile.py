# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_core.queueing import Cohort, Limit, Quota
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
    assert read("queue: {keepRoomAfter: 60}").queue.keep_room_after == 60


BROKEN = {
    "nodes: []": "quotas.yaml:1: nodes: only quotas, cohorts and queue are expected here",
    "quotas:\n- {tenant: a, gpus: {H100: -1}}": "quotas.yaml:2: quotas[0].gpus",
    "quotas: [{tenant: a}, {tenant: a}]": "there are two quotas of namespace a",
    "queue: {patience: 3}": "quotas.yaml:1: queue: Object contains unknown field `patience`",
    "queue: {halfLife: .inf}": "queue: a rule of the queue is negative or without end",
    "[]": "quotas.yaml:1: expected named fields, got list",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_reported(read, text):
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert BROKEN[text] in str(caught.value)
