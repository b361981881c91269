# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent import holders
from gpupack_agent.cgroups import CgroupState

ABSENT = {"uid-a": CgroupState.ABSENT}
EMPTY = {"uid-a": CgroupState.EMPTY}


def test_a_pod_that_the_api_shows_unfinished_is_live(build):
    assert holders.is_live("uid-a", build.node(pods=[build.pod("a")], cgroups=ABSENT))


def test_a_finished_pod_is_dead_once_its_processes_have_ended(build):
    pods = [build.pod("a", finished=True)]
    assert holders.is_live("uid-a", build.node(pods=pods))
    assert not holders.is_live("uid-a", build.node(pods=pods, cgroups=EMPTY))


def test_a_force_deleted_pod_is_live_while_it_has_a_process(build):
    assert holders.is_live("uid-a", build.node())
    assert not holders.is_live("uid-a", build.node(cgroups=EMPTY))
    assert not holders.is_live("uid-a", build.node(cgroups=ABSENT))


def test_only_unknown_pods_with_processes_are_terminating_holders(build):
    node = build.node(
        records=[build.record(name) for name in ("known", "killed", "forced")],
        pods=[build.pod("known")],
        cgroups={"uid-killed": CgroupState.EMPTY},
    )
    (lingers,) = holders.terminating_holders(node)
    assert (lingers.name, lingers.uid, lingers.devices) == (
        "forced",
        "uid-forced",
        (build.share(),),
    )


def test_a_pod_holds_the_gpus_that_its_containers_can_open_as_well(build):
    record = dataclasses.replace(build.record("forced"), peers=(build.share(1),))
    node = build.node(records=[record])
    (lingers,) = holders.terminating_holders(node)
    assert lingers.devices == (build.share(), build.share(1))
    assert holders.obstacle("uid-next", (build.share(1),), node) is not None


def test_a_pod_whose_annotation_is_nested_3000_deep_holds_nothing(build):
    rubbish = dataclasses.replace(build.pod("a", started=True), annotation='[{"x":' * 3_000)
    assert [held.devices for held in holders.holders(build.node(pods=[rubbish]))] == [()]


def finished(build, seconds_ago):
    pod = build.pod("a", finished=True, finished_at=100.0 - seconds_ago)
    node = build.node(records=[build.record("a")], pods=[pod])
    return dataclasses.replace(node, now=100.0)


def test_a_finished_pod_with_processes_is_a_terminating_holder(build):
    (lingers,) = holders.terminating_holders(finished(build, seconds_ago=5.0))
    assert lingers.name == "a"
    ended = dataclasses.replace(
        finished(build, seconds_ago=5.0), cgroup=lambda _uid: CgroupState.EMPTY
    )
    assert holders.terminating_holders(ended) == ()


def test_the_last_moment_of_a_finished_pods_sandbox_is_not_reported(build):
    assert holders.terminating_holders(finished(build, seconds_ago=4.0)) == ()


def test_a_device_of_a_live_pod_is_an_obstacle_and_only_the_log_names_its_holder(build):
    node = build.node(records=[build.record("a")])
    obstacle = holders.obstacle("uid-b", [build.share(0)], node)
    assert obstacle == holders.Obstacle("device GPU-0 is held by another pod", ("team/a",))
    assert holders.obstacle("uid-b", [build.share(1)], node) is None


def test_a_pod_is_not_in_its_own_way(build):
    assert (
        holders.obstacle("uid-a", [build.share()], build.node(records=[build.record("a")])) is None
    )


def test_a_device_of_a_dead_pod_is_free(build):
    node = build.node(records=[build.record("a")], cgroups=ABSENT)
    assert holders.obstacle("uid-b", [build.share()], node) is None


def test_a_started_pod_holds_its_devices_even_if_its_record_was_lost(build):
    node = build.node(pods=[build.pod("a", build.share(), started=True)])
    assert holders.obstacle("uid-b", [build.share()], node).pods == ("team/a",)


def two_records(build):
    return [
        build.record("a", build.share(0), container="x", tokens=("gpu-0",)),
        build.record("a", build.share(1), container="y", tokens=("gpu-1",)),
    ]


def test_a_terminating_pod_with_several_containers_is_listed_once_with_all_devices(build):
    (lingers,) = holders.terminating_holders(build.node(records=two_records(build)))
    assert {share.uuid for share in lingers.devices} == {"GPU-0", "GPU-1"}
    other_order = build.node(records=reversed(two_records(build)))
    assert holders.terminating_holders(other_order) == (lingers,)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_container_of_a_started_pod_holds_its_devices_even_if_its_record_was_lost(build, lost):
    shares = [build.share(0), build.share(1)]
    pod = build.pod("a", *shares, requests=build.requests(x=1, y=1), started=True)
    records = two_records(build)
    del records[lost]
    node = build.node(records=records, pods=[pod])
    for share in shares:
        assert holders.obstacle("uid-b", [share], node).pods == ("team/a",)
    garbled = build.node(records=records, pods=[dataclasses.replace(pod, annotation="[")])
    assert holders.obstacle("uid-b", records[0].devices, garbled)


def test_a_bound_pod_that_never_started_holds_nothing(build):
    node = build.node(pods=[build.pod("a", build.share())])
    assert holders.obstacle("uid-b", [build.share()], node) is None


@pytest.mark.parametrize(("held", "wanted"), [(100, 1), (1, 100)])
def test_whole_and_shared_use_of_a_gpu_never_mix(build, held, wanted):
    node = build.node(records=[build.record("a", build.share(percent=held, memory_mib=1))])
    assert holders.obstacle("uid-b", [build.share(percent=wanted, memory_mib=1)], node)


def test_memory_of_shares_is_summed_too(build):
    node = build.node(records=[build.record("a", build.share(percent=1, memory_mib=600))])
    wanted = build.share(percent=1, memory_mib=401)
    assert "401 MiB requested" in holders.obstacle("uid-b", [wanted], node).reason


@given(st.lists(st.integers(1, 100), max_size=12))
def test_admitted_shares_never_sum_to_more_than_a_gpu(build, percents):
    records = []
    for number, percent in enumerate(percents):
        share = build.share(percent=percent, memory_mib=1)
        if not holders.obstacle(f"uid-{number}", [share], build.node(records=records)):
            records.append(build.record(str(number), share, tokens=[f"share-{number}"]))
    assert sum(record.devices[0].percent for record in records) <= 100
