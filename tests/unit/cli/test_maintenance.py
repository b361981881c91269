# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import msgspec
import pytest

from gpupack_cli import maintenance
from gpupack_cli.errors import NotThere, UsageWrong
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
    assert maintenance.device(node(), which).uuid == "GPU-2"


@pytest.mark.parametrize("which", ["4", "GPU", "", "-1"])
def test_a_gpu_that_is_not_there_is_said_with_those_that_are(which):
    with pytest.raises(NotThere, match="it has 0, 1, 2, 3"):
        maintenance.device(node(), which)


def test_a_cordon_is_an_entry_beside_the_others():
    entries = maintenance.cordoned(node(FAN), ("GPU-3",), "hot")
    assert entries == (FAN, Maintenance(reason="hot", gpus=("GPU-3",)))


def test_the_same_cordon_again_has_the_newer_words():
    assert maintenance.cordoned(node(FAN), FAN.gpus, "both fans") == (
        Maintenance(reason="both fans", gpus=FAN.gpus),
    )


def test_of_an_observed_node_no_single_gpu_is_cordoned():
    with pytest.raises(UsageWrong, match="only the whole node"):
        maintenance.cordoned(node(mode="observed"), ("GPU-1",), "hot")
    assert maintenance.cordoned(node(mode="observed"), (), "hot") == (Maintenance(reason="hot"),)


def test_a_drain_says_who_leaves_and_when():
    (entry,) = maintenance.drained(node(), "driver", "All", AT)
    assert entry == Maintenance(reason="driver", drain="All", stop_at="2026-11-25T12:30:15Z")
    (entry,) = maintenance.drained(node(), "driver", "Movable", None)
    assert (entry.drain, entry.stop_at) == ("Movable", None)


def test_a_gpu_that_comes_back_leaves_the_others_of_its_entry():
    assert maintenance.uncordoned(node(FAN), ("GPU-1",)) == (
        Maintenance(reason="fan", gpus=("GPU-2",)),
    )
    assert maintenance.uncordoned(node(FAN), ("GPU-1", "GPU-2")) == ()


def test_a_node_that_comes_back_has_no_entry_left():
    assert maintenance.uncordoned(node(FAN, WHOLE), ()) == ()


def test_of_a_node_that_is_away_as_a_whole_no_single_gpu_comes_back():
    with pytest.raises(UsageWrong, match="gpupack gpu uncordon gpu-1"):
        maintenance.uncordoned(node(FAN, WHOLE), ("GPU-1",))


@pytest.mark.parametrize(("entries", "gpus"), [((), ()), ((), ("GPU-1",)), ((FAN,), ("GPU-3",))])
def test_what_was_never_cordoned_does_not_come_back(entries, gpus):
    with pytest.raises(NotThere, match="in maintenance"):
        maintenance.uncordoned(node(*entries), gpus)


def test_more_entries_than_there_can_be_are_refused_before_the_api_server_does():
    full = [Maintenance(reason=f"{i}", gpus=(f"GPU-{i}",)) for i in range(MAX_MAINTENANCE)]
    with pytest.raises(UsageWrong, match="as many as there can be"):
        maintenance.cordoned(node(*full), ("GPU-99",), "one more")
