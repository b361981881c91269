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
from gpupack_agent.layouts import Layouts, judge
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.pods import PodStore, PodView
from gpupack_agent.prestart import NodeState
from gpupack_crds.devices import DeviceShare, encode_devices
from gpupack_crds.mig import MigLayout

SMALL, HALF = "1g.18gb", "3g.71gb"
PROFILES = {
    SMALL: Profile(number=19, size=1, starts=tuple(range(7)), most=7),
    HALF: Profile(number=9, size=4, starts=(0, 4), most=2),
}
GPU = MigGpu("GPU-0", PROFILES)


def test_of_a_gpu_nothing_is_said_but_what_it_can_be_cut_into_while_it_is_as_wanted():
    for wanted, present in ((None, [HALF]), ([SMALL, HALF], [HALF, SMALL]), ([], [])):
        found = judge(GPU, wanted, present, set())
        assert (found.said.changing, found.said.message, found.places) == (False, "", None)
        assert found.said.profiles == (SMALL, HALF)


def test_a_gpu_that_nobody_holds_is_to_be_cut():
    found = judge(GPU, [SMALL, HALF], [HALF], set())
    assert found.said.changing
    assert found.places == (Place(HALF, 0, 4), Place(SMALL, 4, 1))


def test_slices_that_are_held_are_waited_for_by_the_names_of_their_pods():
    found = judge(GPU, [HALF], [SMALL], {"team/b", "team/a"})
    assert (found.said.changing, found.places) == (True, None)
    assert found.said.message == "2 pods hold its slices: team/a, team/b"


def test_a_layout_that_cannot_be_keeps_the_slices_in_use_and_says_why():
    found = judge(GPU, [HALF] * 3, [SMALL], set())
    assert (found.said.changing, found.places) == (False, None)
    assert "3 slices 3g.71gb are wanted; there can be 2" in found.said.message


def test_what_is_said_has_a_bound_and_a_name_that_gpunode_would_refuse_is_left_out():
    odd = MigGpu("GPU-0", PROFILES | {"9g.1tb": PROFILES[HALF]})
    found = judge(odd, [HALF], [SMALL], {f"team/{'x' * 50}-{n}" for n in range(20)})
    assert len(found.said.message) == 256
    assert "9g.1tb" not in found.said.profiles


class Clock:
    at = 100.0

    def __call__(self):
        return self.at


class Cutter:
    """Stands for an inventory that cuts."""

    def __init__(self, error=None):
        self.cuts, self.error = [], error

    async def cut(self, uuid, places):
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
        made.want([MigLayout(gpu="GPU-0", profiles=(HALF,))])
        return made

    return make


def holding(node, uuid):
    share = DeviceShare(uuid=uuid, percent=100, memory_mib=1)
    node.pods.by_uid["u"] = PodView("team", "a", "u", annotation=encode_devices((share,)))


async def test_a_gpu_is_cut_once_it_was_said_for_a_while_that_it_will_be(make, clock):
    wanted, inventory = make(), Cutter()
    assert not await wanted.round(inventory)
    wanted.announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS - 0.1
    assert not await wanted.round(inventory)
    clock.at += 0.1
    assert await wanted.round(inventory)
    assert inventory.cuts == [("GPU-0", [HALF])]


async def test_a_pod_that_was_bound_and_has_not_begun_is_waited_for(make, clock, node):
    wanted, inventory = make(), Cutter()
    wanted.announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS
    holding(node, "MIG-1")
    assert not await wanted.round(inventory)
    assert "team/a" in wanted.status()[0].message
    node.pods.by_uid.clear()
    assert await wanted.round(inventory)


async def test_a_pod_on_another_gpu_is_not_waited_for(make, clock, node):
    wanted, inventory = make(), Cutter()
    holding(node, node.known_devices.findings.devices[-1].uuid)
    wanted.announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS
    assert await wanted.round(inventory)


async def test_nothing_is_cut_before_the_pods_are_known(make, clock, node):
    node.pods.synced = False
    wanted, inventory = make(), Cutter()
    wanted.announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS
    assert not await wanted.round(inventory)
    assert wanted.status()[0].changing


async def test_slices_are_used_again_after_the_driver_refused_and_it_is_tried_later(make, clock):
    wanted, refuses = make(), Cutter(InventoryUnavailable("NVML: In use by another client"))
    wanted.announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS
    assert await wanted.round(refuses)
    (said,) = wanted.status()
    assert (said.changing, said.message) == (False, "NVML: In use by another client")
    wanted.announced(wanted.status())
    clock.at += layouts.AGAIN_SECONDS
    wanted.announced(wanted.status())
    assert not await wanted.round(refuses)
    clock.at += layouts.SETTLED_SECONDS
    works = Cutter()
    assert await wanted.round(works)
    assert works.cuts


def observed():
    mode = NodeMode(("nvidia.com/gpu",))
    mode.see({"nvidia.com/gpu": ["GPU-0"]})
    return mode


@pytest.mark.parametrize("given", [{"allowed": False}, {"mode": observed()}])
async def test_where_it_is_not_ours_to_do_layouts_stay_and_it_is_said(make, clock, given):
    wanted, inventory = make(**given), Cutter()
    wanted.announced(wanted.status())
    clock.at += layouts.SETTLED_SECONDS
    assert not await wanted.round(inventory)
    (said,) = wanted.status()
    assert not said.changing
    assert said.message in {layouts.FORBIDDEN, layouts.NOT_OURS}


def test_of_gpus_that_are_not_in_mig_mode_it_is_said_how_to_get_there(make, node):
    wanted = make()
    whole = node.known_devices.findings.devices[-1].uuid
    wanted.want([MigLayout(gpu=whole, profiles=()), MigLayout(gpu="GPU-9", profiles=())])
    said = {each.gpu: each.message for each in wanted.status()}
    assert "nvidia-smi" in said[whole]
    assert said["GPU-9"] == layouts.UNKNOWN
    assert said["GPU-0"] == ""
