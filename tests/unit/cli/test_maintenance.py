# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import msgspec
import pytest

from gpupack_cli import maintenance
from gpupack_cli.errors import ObjectNotFound, UsageInvalid
from gpupack_crds.gpunode import MAX_MAINTENANCE, Maintenance
from gpupack_crds.kinds import GpuNode

AT = dt.datetime(2026, 11, 25, 12, 30, 15, 999, tzinfo=dt.UTC)


def node(*entries, mode="owned"):
    devices = [
        {"uuid": f"GPU-{i}", "index": i, "model": "H100", "memoryMiB": 81559} for i in range(4)
    ]
    return msgspec.convert(
        {
            "metadata": {"name": "gpu-1"},
            "spec": {"maintenance": list(map(msgspec.to_builtins, entries))},
            "status": {"mode": mode, "devices": devices},
        },
        GpuNode,
    )


FAN = Maintenance(reason="fan", gpus=("GPU-1", "GPU-2"))
WHOLE = Maintenance(reason="firmware")


@pytest.mark.parametrize("which", ["2", "GPU-2"])
def test_a_gpu_is_named_by_its_index_or_its_uuid(which):
    assert maintenance.find_device(node(), which).uuid == "GPU-2"


@pytest.mark.parametrize("which", ["4", "GPU", "", "-1"])
def test_a_missing_gpu_is_reported_with_the_existing_ones(which):
    with pytest.raises(ObjectNotFound, match="it has 0, 1, 2, 3"):
        maintenance.find_device(node(), which)


def test_a_cordon_is_added_to_the_other_entries():
    entries = maintenance.cordon_entries(node(FAN), ("GPU-3",), "hot")
    assert entries == (FAN, Maintenance(reason="hot", gpus=("GPU-3",)))


def test_a_repeated_cordon_replaces_the_reason():
    assert maintenance.cordon_entries(node(FAN), FAN.gpus, "both fans") == (
        Maintenance(reason="both fans", gpus=FAN.gpus),
    )


def test_a_single_gpu_of_an_observed_node_cannot_be_cordoned():
    with pytest.raises(UsageInvalid, match="only the whole node"):
        maintenance.cordon_entries(node(mode="observed"), ("GPU-1",), "hot")
    assert maintenance.cordon_entries(node(mode="observed"), (), "hot") == (
        Maintenance(reason="hot"),
    )


def test_a_drain_has_its_scope_and_time():
    (entry,) = maintenance.drain_entries(node(), "driver", "All", AT)
    assert entry == Maintenance(reason="driver", drain="All", stop_at="2026-11-25T12:30:15Z")
    (entry,) = maintenance.drain_entries(node(), "driver", "Movable", None)
    assert (entry.drain, entry.stop_at) == ("Movable", None)


def test_uncordoning_one_gpu_keeps_the_others_of_its_entry():
    assert maintenance.uncordon_entries(node(FAN), ("GPU-1",)) == (
        Maintenance(reason="fan", gpus=("GPU-2",)),
    )
    assert maintenance.uncordon_entries(node(FAN), ("GPU-1", "GPU-2")) == ()


def test_uncordoning_a_node_removes_all_entries():
    assert maintenance.uncordon_entries(node(FAN, WHOLE), ()) == ()


def test_a_single_gpu_of_a_cordoned_node_cannot_be_uncordoned():
    with pytest.raises(UsageInvalid, match="gpupack gpu uncordon gpu-1"):
        maintenance.uncordon_entries(node(FAN, WHOLE), ("GPU-1",))


@pytest.mark.parametrize(("entries", "gpus"), [((), ()), ((), ("GPU-1",)), ((FAN,), ("GPU-3",))])
def test_uncordoning_without_a_cordon_is_refused(entries, gpus):
    with pytest.raises(ObjectNotFound, match="in maintenance"):
        maintenance.uncordon_entries(node(*entries), gpus)


def test_too_many_entries_are_refused():
    full = [Maintenance(reason=f"{i}", gpus=(f"GPU-{i}",)) for i in range(MAX_MAINTENANCE)]
    with pytest.raises(UsageInvalid, match="as many as there can be"):
        maintenance.cordon_entries(node(*full), ("GPU-99",), "one more")
