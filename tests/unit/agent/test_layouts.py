# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_agent import layouts
from gpupack_agent.cdi import SpecFolder
from gpupack_agent.cgroups import Cgroups
from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.layout import MigGpu, Place, Profile
from gpupack_agent.known_devices import KnownDevices
from gpupack_agent.layouts import Layouts, decide_layout
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.pods import PodStore, PodView
from gpupack_agent.prestart import NodeState
from gpupack_crds.devices import DeviceShare, encode_devices
from gpupack_crds.mig import MigLayout

SMALL, HALF = "1g.18gb", "3g.71gb"
PROFILES = {
    SMALL: Profile(number=19, size=1, starts=tuple(range(7)), max_count=7),
    HALF: Profile(number=9, size=4, starts=(0, 4), max_count=2),
}
GPU = MigGpu("GPU-0", PROFILES)


def test_a_gpu_with_the_requested_layout_shows_only_its_profiles():
    for wanted, present in ((None, [HALF]), ([SMALL, HALF], [HALF, SMALL]), ([], [])):
        found = decide_layout(GPU, wanted, present, set())
        assert (found.entry.changing, found.entry.message, found.places) == (False, "", None)
        assert found.entry.profiles == (SMALL, HALF)


def test_a_gpu_without_holders_is_to_be_partitioned():
    found = decide_layout(GPU, [SMALL, HALF], [HALF], set())
    assert found.entry.changing
    assert found.places == (Place(HALF, 0, 4), Place(SMALL, 4, 1))


def test_held_slices_are_waited_for_and_their_pods_are_named():
    found = decide_layout(GPU, [HALF], [SMALL], {"team/b", "team/a"})
    assert (found.entry.changing, found.places) == (True, None)
    assert found.entry.message == "waiting for 2 pods that hold its slices: team/a, team/b"


def test_an_impossible_layout_keeps_the_slices_and_shows_the_reason():
    found = decide_layout(GPU, [HALF] * 3, [SMALL], set())
    assert (found.entry.changing, found.places) == (False, None)
    assert "3 slices 3g.71gb are requested; the maximum is 2" in found.entry.message


def test_messages_are_shortened_and_invalid_profile_names_omitted():
    odd = MigGpu("GPU-0", PROFILES | {"9g.1tb": PROFILES[HALF]})
    found = decide_layout(odd, [HALF], [SMALL], {f"team/{'x' * 50}-{n}" for n in range(20)})
    assert len(found.entry.message) == 256
    assert "9g.1tb" not in found.entry.profiles


class Clock:
    at = 100.0

    def __call__(self):
        return self.at


class Cutter:
    """Stands for an inventory that cuts."""

    def __init__(self, error=None):
        self.cuts, self.error = [], error

    async def partition(self, uuid, places):
        if self.error:
            raise self.error
        self.cuts.append((uuid, [each.profile for each in places]))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def node(build, cgroups, tmp_path):
    specs = SpecFolder(tmp_path / "cdi")
    specs.load()
    known = KnownDevices()
    device = msgspec.structs.replace(
        build.device(0), uuid="MIG-1", mig_parent="GPU-0", mig_profile=SMALL
    )
    known.update(Findings(devices=(device, build.device(1)), mig_gpus=(GPU,)))
    node = NodeState(PodStore(), specs, Cgroups(cgroups.root), known)
    node.pods.replace([])
    return node


@pytest.fixture
def make(node, clock):
    def make(*, allowed=True, mode=None):
        made = Layouts(node, mode or NodeMode(()), allowed=allowed, now=clock)
        made.request([MigLayout(gpu="GPU-0", profiles=(HALF,))])
        return made

    return make


def holding(node, uuid):
    share = DeviceShare(uuid=uuid, percent=100, memory_mib=1)
    node.pods.by_uid["u"] = PodView("team", "a", "u", annotation=encode_devices((share,)))


async def test_a_gpu_is_partitioned_once_gpunode_has_announced_it_for_a_while(make, clock):
    wanted, inventory = make(), Cutter()
    assert not await wanted.round(inventory)
    wanted.record_announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS - 0.1
    assert not await wanted.round(inventory)
    clock.at += 0.1
    assert await wanted.round(inventory)
    assert inventory.cuts == [("GPU-0", [HALF])]


async def test_a_pod_that_was_bound_and_has_not_begun_is_waited_for(make, clock, node):
    wanted, inventory = make(), Cutter()
    wanted.record_announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS
    holding(node, "MIG-1")
    assert not await wanted.round(inventory)
    assert "team/a" in wanted.status()[0].message
    node.pods.by_uid.clear()
    assert await wanted.round(inventory)


async def test_a_pod_on_another_gpu_is_not_waited_for(make, clock, node):
    wanted, inventory = make(), Cutter()
    holding(node, node.known_devices.findings.devices[-1].uuid)
    wanted.record_announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS
    assert await wanted.round(inventory)


async def test_no_gpu_is_partitioned_before_the_pods_are_known(make, clock, node):
    node.pods.synced = False
    wanted, inventory = make(), Cutter()
    wanted.record_announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS
    assert not await wanted.round(inventory)
    assert wanted.status()[0].changing


async def test_after_a_refusal_slices_stay_usable_and_the_partitioning_is_repeated_later(
    make, clock
):
    wanted, refuses = make(), Cutter(InventoryUnavailable("NVML: In use by another client"))
    wanted.record_announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS
    assert await wanted.round(refuses)
    (entry,) = wanted.status()
    assert (entry.changing, entry.message) == (False, "NVML: In use by another client")
    wanted.record_announced(wanted.status())
    clock.at += layouts.RETRY_SECONDS
    wanted.record_announced(wanted.status())
    assert not await wanted.round(refuses)
    clock.at += layouts.SETTLED_SECONDS
    works = Cutter()
    assert await wanted.round(works)
    assert works.cuts


def observed():
    mode = NodeMode(("nvidia.com/gpu",))
    mode.update({"nvidia.com/gpu": ["GPU-0"]})
    return mode


@pytest.mark.parametrize("given", [{"allowed": False}, {"mode": observed()}])
async def test_layouts_stay_on_observed_nodes_and_where_changes_are_disabled(make, clock, given):
    wanted, inventory = make(**given), Cutter()
    wanted.record_announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS
    assert not await wanted.round(inventory)
    (entry,) = wanted.status()
    assert not entry.changing
    assert entry.message in {layouts.CHANGES_DISABLED, layouts.OBSERVED_NODE}


def test_gpus_without_mig_mode_show_how_to_enable_it(make, node):
    wanted = make()
    whole = node.known_devices.findings.devices[-1].uuid
    wanted.request([MigLayout(gpu=whole, profiles=()), MigLayout(gpu="GPU-9", profiles=())])
    entry = {each.gpu: each.message for each in wanted.status()}
    assert "nvidia-smi" in entry[whole]
    assert entry["GPU-9"] == layouts.UNKNOWN_GPU
    assert entry["GPU-0"] == ""
