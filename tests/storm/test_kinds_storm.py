# SPDX-License-Identifier: Apache-2.0
"""Whole GPUs, shares and MIG slices on one node, two other vendors' GPUs on the other, at once.

One node of ours has a GPU that is cut into slices; on the other two device plugins serve, NVIDIA's
and AMD's by their resources. Every part is killed, and the judge is the kernel's locks. All GPUs
are simulated; kubelets, device tokens, decisions and containers are not.
"""

import dataclasses
import json
import os
import random
import time
from collections import Counter

import pytest
from chaos import PARTS, killing
from harness import wait_for
from manifests import Share
from observed_node import THEIRS, last_node
from simulated_layout import layout
from storms import Server, Storm, ebb, flood, tide

pytestmark = pytest.mark.alone

SEEDS = [int(seed) for seed in os.environ.get("STORM_SEEDS", "1 2 3 4 5").split()]
JOBS = int(os.environ.get("STORM_JOBS", "60"))
ROUNDS = 2
EVERY_SECONDS = (2.0, 6.0)
PATIENCE_SECONDS = float(os.environ.get("STORM_PATIENCE_SECONDS", "900"))
AMD = "amd.com/gpu"
SMALL, HALF = "1g.10gb", "3g.40gb"
WHOLE = 7
"""GPUs of our node that are not cut."""


@dataclasses.dataclass(frozen=True)
class Kinds:
    """What there is, by kind: UUIDs or ids, each with the GPU that it is part of."""

    whole: dict[str, str]
    small: dict[str, str]
    half: dict[str, str]
    theirs: dict[str, str]
    amd: dict[str, str]


@pytest.fixture(scope="module")
def kinds(cluster, system):
    """The two nodes as they are to be; ours alone afterwards."""
    ours = cluster.nodes()[0]
    with (
        layout(system, ours, cut=[HALF, SMALL, SMALL]) as devices,
        last_node(cluster, system) as stand,
    ):
        theirs = dict.fromkeys(stand.ids[:4], "")
        amd = {f"0000:{bus:02x}:00.0": "" for bus in (5, 38, 70, 101)}
        stand.serve("stand-in", THEIRS, tuple(theirs))
        stand.serve("amd", AMD, tuple(amd))
        both = {THEIRS, AMD}
        wait_for(
            lambda: set(stand.gpunode().get("resources", [])) == both,
            seconds=30,
            what="both vendors are observed",
        )
        try:
            yield Kinds(
                whole={e["uuid"]: "" for e in devices if not e.get("migParent")},
                small=slices(devices, SMALL),
                half=slices(devices, HALF),
                theirs=theirs,
                amd=amd,
            )
        finally:
            stand.stop("amd", AMD)


def slices(devices, profile):
    return {e["uuid"]: e["migParent"] for e in devices if e.get("migProfile") == profile}


def drawn(judged, kinds, *, seed):
    """Jobs and servers of all kinds."""
    chance = random.Random(seed)
    jobs = [_job(judged, kinds, f"storm-{index}", index, chance) for index in range(JOBS)]
    small = Share(10, judged.gpu_memory_mib // 10)
    sizes = [
        {"gpus": 1, "may": kinds.whole},
        {"share": small, "may": kinds.whole},
        {"asked": {f"gpupack.dev/mig-{SMALL}": "1"}, "may": kinds.small},
        {"asked": {THEIRS: "1"}, "may": kinds.theirs},
        {"asked": {AMD: "1"}, "may": kinds.amd},
    ]
    servers = [
        Server(
            name=f"server-{number}",
            most=2 if "gpus" in size or "share" in size else 1,
            manifest=judged.deployment(f"server-{number}", replicas=0, linger_seconds=0.5, **size),
        )
        for number, size in enumerate(sizes)
    ]
    return Storm(jobs, servers)


def _job(judged, kinds, name, index, chance):
    seconds = round(chance.uniform(0.2, 1.5), 2)
    workers = chance.randint(1, 2)
    match index % 6:
        case 0:
            gpus = chance.randint(1, WHOLE // 2)
            asked = {"workers": workers, "gpus": gpus, "may": kinds.whole}
        case 1:
            percent = chance.randint(5, 90)
            share = Share(percent, judged.gpu_memory_mib * percent // 100)
            asked = {"workers": workers, "share": share, "may": kinds.whole}
        case 2:
            asked = {"workers": workers, "gpus": 1, "mig": SMALL, "may": kinds.small}
        case 3:
            asked = {"gpus": 1, "mig": HALF, "may": kinds.half}
        case 4:
            gpus = chance.randint(1, 2)
            asked = {"workers": workers, "gpus": gpus, "resourceName": THEIRS, "may": kinds.theirs}
        case _:
            gpus = chance.randint(1, 2)
            asked = {"workers": workers, "gpus": gpus, "resourceName": AMD, "may": kinds.amd}
    return judged.job(name, seconds=seconds, **asked)


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_gpus_shares_slices_and_two_vendors_survive_every_part_being_killed(
    *, kube, cluster, judged, kinds, refusals, tell, seed
):
    storm = drawn(judged, kinds, seed=seed)
    kills, begin = ROUNDS * len(PARTS), time.monotonic()
    with killing(
        cluster, seed=seed, every_seconds=EVERY_SECONDS, rounds=ROUNDS, when=kube.answers
    ) as killed:
        with tide(kube, storm.servers, seed=seed, every_seconds=(1.0, 4.0)) as scaled:
            storm.submit(kube)
            wait_for(
                lambda: len(killed()) == kills, seconds=PATIENCE_SECONDS, what=f"{kills} kills"
            )
        ebb(kube, storm.servers)
        jobs = kube.wait_finished(storm.names, seconds=PATIENCE_SECONDS)
        pods = flood(kube, storm.servers, seconds=PATIENCE_SECONDS)
    attempts = [attempt for job in jobs.values() for attempt in job["status"]["attempts"]]
    again = [attempt for attempt in attempts if attempt["outcome"] != "Succeeded"]
    held = Counter(
        uuid
        for job in jobs.values()
        for result in job["status"]["results"]
        for uuid in result["metrics"]["devices"].split(",")
    )
    tell(
        f"seed {seed}: {time.monotonic() - begin:.0f} s; killed {json.dumps(Counter(killed()))}; "
        f"{scaled()} times scaled; {len(again)} attempts repeated "
        f"{json.dumps(Counter(a['reason'] for a in again))}; {len(held)} devices were held"
    )
    assert refusals() == []
    assert Counter(job["status"]["phase"] for job in jobs.values()) == {"Succeeded": JOBS}
    assert {attempt["outcome"] for attempt in again} <= {"Infrastructure"}
    everything = kinds.whole | kinds.small | kinds.half | kinds.theirs | kinds.amd
    assert held.keys() <= everything.keys()
    for kind in (kinds.small, kinds.half, kinds.theirs, kinds.amd):
        assert held.keys() & kind.keys(), "none of a kind was ever held"
    assert len(pods) == sum(server.most for server in storm.servers)
