# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_agent.pods import PodView
from gpupack_agent.usage import HELD_BY_CHARACTERS, compute_usage, shorten_names
from gpupack_crds.gpunode import GpuHolder


def pod(name, annotation=None, **facts):
    return PodView(namespace="team", name=name, uid=f"uid-{name}", annotation=annotation, **facts)


def share(number, percent):
    return f'{{"uuid":"GPU-{number}","percent":{percent},"memoryMiB":10}}'


@pytest.fixture
def devices(build):
    return [build.device(number) for number in range(4)]


def test_gpus_are_free_shared_or_held_whole(devices):
    pods = [
        pod("a", f"[{share(0, 100)}]"),
        pod("b", f"[{share(1, 40)}]"),
        pod("c", f"[{share(1, 30)}]"),
    ]
    found = compute_usage(devices, pods, ())
    assert (found["free"], found["shared"], found["held"]) == (2, 1, 1)
    assert found["held_by"] == "team/a,team/b,team/c"


def test_a_finished_pod_and_one_that_waits_hold_nothing(devices):
    pods = [pod("a", f"[{share(0, 100)}]", finished=True), pod("b"), pod("c", "no JSON")]
    assert compute_usage(devices, pods, ()) == {"free": 4, "shared": 0, "held": 0, "held_by": ""}


def test_a_terminating_holder_counts_once(devices, build):
    over = pod("a", f"[{share(0, 100)}]", finished=True)
    holders = [
        GpuHolder(namespace="team", name=name, uid=f"uid-{name}", devices=(build.share(number),))
        for number, name in enumerate(["a", "gone"])
    ]
    found = compute_usage(devices, [over], holders)
    assert (found["held"], found["held_by"]) == (2, "team/a,team/gone")


def test_on_an_observed_node_the_kubelets_holders_count(devices, build):
    holder = GpuHolder(namespace="team", name="a", uid="uid-a", devices=(build.share(2),))
    assert compute_usage(devices, [pod("a")], [holder])["held"] == 1


def test_many_names_are_shortened_to_a_number():
    names = [f"team/worker-{number:03}" for number in range(300)]
    text = shorten_names(names)
    shown, more = text.split(",")[:-1], text.split(",")[-1]
    assert len(text) <= HELD_BY_CHARACTERS
    assert len(shown) + int(more) == 300
