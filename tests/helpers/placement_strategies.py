# SPDX-License-Identifier: Apache-2.0
"""Random clusters and requests for properties.

GPUPACK_TEST_CASES sets how many cases each property gets (25; run thousands after a change).
"""

import os
from contextlib import suppress
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from placement_builders import cluster_of, gang, mig_devices, node, share, slices, whole

from gpupack_placement import (
    POLICIES,
    Gang,
    Health,
    Holder,
    Interconnect,
    InvalidRequest,
    Placement,
    Request,
    Role,
    Share,
    Spread,
    decide,
)

MODELS = ("H100", "T4")
cases = settings(max_examples=int(os.environ.get("GPUPACK_TEST_CASES", "25")), deadline=None)


PROFILES = ("1g.10gb", "3g.40gb", "7g.80gb")
cuts = st.dictionaries(st.sampled_from(PROFILES[:2]), st.integers(1, 2), max_size=2)


@st.composite
def nodes(draw, name, most=4):
    served = draw(st.sampled_from([("",), ("",), ("",), ("other",), ("", "other")]))
    base = node(
        name,
        draw(st.integers(0, most)),
        cpu=draw(st.sampled_from([1000, 4000])),
        memory=draw(st.sampled_from([2, 8])),
        pods=draw(st.sampled_from([None, None, None, 1, 3])),
        ready=draw(st.integers(0, 5)) > 0,
        cordoned=draw(st.integers(0, 5)) == 0,
        extended=draw(st.sampled_from([(), (), (("nic", 2),), (("disk", 9), ("nic", 1))])),
    )
    devices = tuple(
        replace(
            device,
            model=draw(st.sampled_from(MODELS)),
            memory=draw(st.sampled_from([10, 20])),
            clique=draw(st.sampled_from([None, 0, 5])),
            numa_node=draw(st.sampled_from([None, 0, 1])),
            max_shares=draw(st.sampled_from([1, 2, 1000])),
            speed=draw(st.sampled_from([600, 980, 1000])),
            health=draw(st.sampled_from([Health.HEALTHY] * 6 + [Health.CORDONED, Health.FAILED])),
            resource=draw(st.sampled_from(served)),
        )
        for device in base.devices
    )
    cut = mig_devices(name, *draw(st.lists(cuts, max_size=2)), first=len(devices))
    parts = [replace(each, resource=draw(st.sampled_from(served))) for each in cut]
    return replace(base, devices=(*devices, *parts))


@st.composite
def requests(draw):
    extra = {
        "models": draw(st.sampled_from([(), (), ("H100",), MODELS])),
        "min_memory": draw(st.sampled_from([0, 0, 15])),
        "cpu": draw(st.sampled_from([0, 500, 1500])),
        "memory": draw(st.sampled_from([0, 1])),
        "resource": draw(st.sampled_from(["", "", "", "other"])),
        "extended": draw(st.sampled_from([(), (), (), (("nic", 1),), (("disk", 4), ("nic", 1))])),
    }
    kind = draw(st.sampled_from(["share", "share", "whole", "whole", "slices"]))
    if kind == "slices":
        return slices(draw(st.sampled_from(PROFILES)), draw(st.integers(1, 3)), **extra)
    if kind == "share":
        return share(draw(st.sampled_from([200, 400, 700])), draw(st.integers(0, 12)), **extra)
    return whole(draw(st.integers(0, 3)), interconnect=draw(st.sampled_from(Interconnect)), **extra)


policies = st.sampled_from(list(POLICIES.values()))


@st.composite
def clusters(draw, max_nodes=3, max_gpus=4, fill=6):
    count = draw(st.integers(0, max_nodes))
    cluster = cluster_of(*(draw(nodes(f"n{i}", max_gpus)) for i in range(count)))
    for number in range(draw(st.integers(0, fill))):
        answer = decide(cluster, draw(requests()), draw(policies))
        if isinstance(answer, Placement):
            cluster.take(Holder(f"old{number}"), answer)
    return cluster


def books(cluster):
    """All numbers by node name, independent of rows and padding."""
    return {n.name: _row(cluster, n.name) for n in cluster.nodes()}


def _row(cluster, name):
    a, row = cluster.arrays, cluster.row(name)
    per_node = (
        a.free_gpu_milli,
        a.free_cpu,
        a.free_ram,
        a.used_cpu,
        a.used_ram,
        a.gpus,
        a.free_pods,
        *(a.extended.free(name, slice(None), like=a.pods) for name in ("disk", "nic")),
    )
    return cluster.free_devices(name), tuple(int(vector[row]) for vector in per_node)


@st.composite
def gangs(draw, max_workers=4):
    """Those with a rule that contradicts itself are left out."""
    request, workers = draw(requests()), draw(st.integers(1, max_workers))
    rules = [{}, {"max_nodes": 1}, {"max_nodes": 2}]
    if workers <= 3:
        rules.append({"one_worker_per_node": True})
    if request.gpus or request.share:
        rules += [{"same_clique": True}] * 2
    return gang(workers, request, **draw(st.sampled_from(rules)))


@st.composite
def open_clusters(draw, max_nodes=3, max_gpus=4):
    """Clusters whose nodes are open to all requests, so that most roles fit alone."""
    made = []
    for number in range(draw(st.integers(1, max_nodes))):
        name = f"n{number}"
        gpus = draw(st.integers(1, max_gpus))
        base = node(
            name,
            gpus,
            cliques=draw(st.sampled_from([None, [0] * gpus, [n % 2 for n in range(gpus)]])),
            cpu=draw(st.sampled_from([3000, 6000])),
            pods=draw(st.sampled_from([None, None, None, 3])),
            extended=draw(st.sampled_from([(), (("nic", 1),)])),
        )
        model = draw(st.sampled_from(MODELS))
        shares = draw(st.sampled_from([2, 1000]))
        whole_gpus = [replace(d, model=model, max_shares=shares) for d in base.devices]
        cut = mig_devices(name, *draw(st.lists(cuts, max_size=1)), first=gpus)
        made.append(replace(base, devices=(*whole_gpus, *cut)))
    return cluster_of(*made)


@st.composite
def role_requests(draw):
    extra = {
        "models": draw(st.sampled_from([(), (), (), ("H100",)])),
        "cpu": draw(st.sampled_from([0, 1000, 2000])),
        "extended": draw(st.sampled_from([(), (), (), (("nic", 1),)])),
    }
    kind = draw(st.sampled_from(["none", "share", "share", "whole", "whole", "slices"]))
    if kind == "slices":
        return slices(PROFILES[0], draw(st.integers(1, 2)), **extra)
    if kind == "share":
        size = draw(st.sampled_from([300, 500, 700]))
        part = Share(size, draw(st.sampled_from([0, 30_000])), draw(st.sampled_from(["", "", "b"])))
        return Request(share=part, **extra)
    gpus = draw(st.integers(1, 3)) if kind == "whole" else 0
    return whole(gpus, interconnect=draw(st.sampled_from(Interconnect)), **extra)


@st.composite
def gangs_of_roles(draw, max_workers=3):
    """Gangs of two or three roles; rules that contradict others are left out."""
    names = draw(st.sampled_from([("leader", "worker"), ("router", "prefill", "decode")]))
    anywhere = [Spread()] * 4
    limits = [Spread(max_nodes=1), Spread(one_worker_per_node=True), Spread(same_clique=True)]
    roles = []
    for name in names:
        role = Role(name, draw(st.integers(1, max_workers)), draw(role_requests()))
        with suppress(InvalidRequest):
            limited = replace(role, spread=draw(st.sampled_from(anywhere + limits)))
            limited.check()
            role = limited
        roles.append(role)
    of_all = [*anywhere, *limits, Spread(max_nodes=2)]
    with suppress(InvalidRequest):
        return Gang(tuple(roles), draw(st.sampled_from(of_all)))
    return Gang(tuple(roles))
