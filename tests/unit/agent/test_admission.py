# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_agent.admission import Wait, admit
from gpupack_agent.cgroups import CgroupState
from gpupack_agent.errors import StartRefused
from gpupack_agent.holders import Record
from gpupack_agent.pods import Ask
from gpupack_crds import names

ONE = frozenset({"gpu-5"})
SLOT = frozenset({"share-0-3"})


def refusal(pod, node, resource=names.GPU, tickets=ONE):
    with pytest.raises(StartRefused) as caught:
        admit(pod, resource, tickets, node)
    return str(caught.value)


def test_a_pod_gets_the_devices_of_its_annotation_whatever_its_tickets_are(build):
    pod = build.pod("a", build.share(2))
    verdict = admit(pod, names.GPU, ONE, build.node(pods=[pod]))
    assert isinstance(verdict, Record)
    assert (verdict.uid, verdict.devices, verdict.tickets) == ("uid-a", (build.share(2),), ONE)


def test_a_share_is_handed_out_for_a_slot(build):
    asks = (Ask(container="worker", resource=names.GPU_SHARE, count=1),)
    pod = build.pod("a", build.share(0, 30, 100), asks=asks)
    assert isinstance(admit(pod, names.GPU_SHARE, SLOT, build.node()), Record)


def test_a_pod_waits_for_the_predecessor_on_its_device(build):
    node = build.node(records=[build.record("old")])
    verdict = admit(build.pod("a", build.share()), names.GPU, ONE, node)
    assert verdict == Wait(
        "device GPU-0 is held by another pod", ("team/a", "team/old"), is_held=True
    )


def test_a_pod_waits_while_its_tickets_name_the_spec_of_a_live_pod(build):
    node = build.node(records=[build.record("old", build.share(1), tickets=ONE)])
    verdict = admit(build.pod("a", build.share(0)), names.GPU, ONE, node)
    assert isinstance(verdict, Wait)
    assert "those of another pod" in verdict.reason
    assert "team/old" in verdict.pods


def test_a_pod_without_a_cgroup_is_not_the_one_that_starts(build):
    node = build.node(cgroups={"uid-a": CgroupState.ABSENT})
    assert isinstance(admit(build.pod("a", build.share()), names.GPU, ONE, node), Wait)


def test_a_pod_that_was_not_bound_by_us_is_refused(build):
    said = refusal(build.pod("a"), build.node())
    assert "schedulerName: gpupack and no nodeName" in said
    assert "if it has that, it was bound by somebody else" in said


def test_a_garbled_annotation_is_refused(build):
    pod = build.pod("a", build.share(), annotation="[{]")
    assert "[{]" in refusal(pod, build.node())


def test_an_annotation_that_names_more_devices_than_tickets_is_refused(build):
    pod = build.pod("a", build.share(0), build.share(1))
    assert "1 tickets" in refusal(pod, build.node())


def test_a_share_is_not_handed_out_for_a_whole_gpus_ticket(build):
    assert "must agree" in refusal(build.pod("a", build.share(percent=50)), build.node())


def test_a_whole_gpu_is_not_handed_out_for_a_slot(build):
    pod = build.pod("a", build.share())
    assert "must agree" in refusal(pod, build.node(), names.GPU_SHARE, SLOT)


def test_two_asking_containers_are_refused_by_name(build):
    asks = tuple(Ask(container=name, resource=names.GPU, count=1) for name in ("x", "y"))
    assert "containers x, y" in refusal(build.pod("a", build.share(), asks=asks), build.node())


def test_a_device_of_another_node_is_refused(build):
    assert "GPU-9 is not among" in refusal(build.pod("a", build.share(9)), build.node())


def test_a_failed_device_is_refused_with_its_cause(build):
    node = build.node(devices=[build.device(0, health="Failed", cause="XID 79")])
    assert "GPU-0 failed: XID 79" in refusal(build.pod("a", build.share()), node)


def test_more_memory_than_the_device_has_is_refused(build):
    pod = build.pod("a", build.share(memory_mib=1001))
    assert "it has 1000 MiB" in refusal(pod, build.node())


def test_an_annotation_that_changed_since_the_first_start_is_refused(build):
    node = build.node(records=[build.record("a", build.share(0))])
    assert "was changed" in refusal(build.pod("a", build.share(1)), node)
