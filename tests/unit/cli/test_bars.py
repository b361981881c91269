# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import msgspec
import pytest
from rich.console import Console

from gpupack_cli import bars
from gpupack_crds.kinds import GpuNode
from gpupack_restapi.nodes import DeviceView, NodeView, Status, Utilization

NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
WIDTHS = (40, 80, 120, 200)


def device(index, free_percent, health="Healthy", **figures):
    return DeviceView(
        index=index,
        uuid=f"GPU-{index}",
        gpu_type="NVIDIA H100",
        memory_gb=85.5,
        free_percent=free_percent,
        free_memory_gb=85.5,
        health=health,
        **figures,
    )


def node(name, *devices, **changed):
    fields = {
        "node_name": name,
        "gpu_type": "NVIDIA H100",
        "total_gpus": len(devices),
        "available_gpus": sum(each.free_percent == 100 for each in devices),
        "memory_per_gpu": 85.5,
        "utilization": 50.0,
        "ready": True,
        "devices": devices,
    }
    return NodeView(**fields | changed)


def drawn(found, width, *, lines=None, status=None):
    screen = Console(width=width, no_color=True, markup=False, highlight=False, emoji=False)
    with screen.capture() as captured:
        screen.print(bars.render_bars(found, status=status, moment=NOW, width=width, lines=lines))
    return captured.get().splitlines()


def test_each_gpu_is_a_character():
    bar = bars.bar_from_rest(
        node("a", device(0, 0), device(1, 40.0), device(2, 100.0), device(3, 0, "Maintenance"))
    )
    assert bar.cells == "█▄·x"
    assert (bar.free, bar.gpus) == (1, 4)


def test_readings_of_the_driver_are_shown_where_they_are_known():
    bar = bars.bar_from_rest(
        node(
            "a",
            device(0, 0, temperature_celsius=60.0, power_watts=300.0, busy_percent=90.0),
            device(1, 0, temperature_celsius=71.0, power_watts=350.0, busy_percent=100.0),
        )
    )
    assert (bar.hottest_celsius, bar.power_watts, bar.busy_percent) == (71.0, 650.0, 95.0)
    (line,) = [each for each in drawn([bar], 200) if each.startswith("a ")]
    assert "95% busy" in line
    assert "71 °C" in line
    assert "650 W" in line
    silent = bars.bar_from_rest(node("a", device(0, 0)))
    assert silent.hottest_celsius is silent.power_watts is silent.busy_percent is None


def test_without_the_rest_api_a_gpunode_gives_the_counts():
    found = msgspec.convert(
        {
            "metadata": {"name": "a"},
            "status": {"gpus": 8, "held": 3, "shared": 1, "free": 3, "model": "H100"},
        },
        GpuNode,
    )
    bar = bars.bar_from_gpunode(found)
    assert bar.cells == "███▄···x"
    assert bar.percent == 50.0
    assert (
        bars.bar_from_gpunode(msgspec.convert({"metadata": {"name": "b"}}, GpuNode)).percent == 0.0
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_the_view_fits_the_terminal_with_long_node_names(width):
    name = "ip-10-0-0-1.eu-central-1.compute.internal-" + "x" * 200
    found = [bars.bar_from_rest(node(name, *(device(i, 0) for i in range(8)), ready=False))]
    shown = drawn(found, width)
    assert max(map(len, shown)) <= width
    assert any("████████" in line for line in shown)


def test_a_bar_with_many_slices_is_cut():
    bar = bars.bar_from_rest(node("a", *(device(i, 100.0) for i in range(112))))
    shown = "\n".join(drawn([bar], 200))
    assert "·" * 64 + "…" in shown
    assert "112/112 free" in shown


def test_nodes_beyond_the_terminal_are_counted():
    found = [bars.bar_from_rest(node(f"n{i}", device(0, 0))) for i in range(5000)]
    shown = drawn(found, 80, lines=24)
    assert len(shown) <= 24
    assert "and 4981 more nodes" in "\n".join(shown)


def test_nodes_are_sorted_by_name_allocation_or_free_gpus():
    found = [
        bars.bar_from_rest(node("b", device(0, 100.0), utilization=10.0)),
        bars.bar_from_rest(node("a", device(0, 0), utilization=90.0)),
    ]
    assert [bar.name for bar in bars.sort_bars(found, by="name")] == ["a", "b"]
    assert [bar.name for bar in bars.sort_bars(found, by="used")] == ["a", "b"]
    assert [bar.name for bar in bars.sort_bars(found, by="free")] == ["b", "a"]


def test_the_heading_shows_the_sums_of_the_api():
    status = Status(
        utilization=Utilization(62.5, 50.0),
        available_nodes=(),
        total_nodes=2,
        total_gpus=16,
        available_gpus=6,
        timestamp=NOW,
    )
    head = drawn([bars.bar_from_rest(node("a", device(0, 0)))], 80, status=status)[0]
    assert head.startswith("16 GPUs in 1 node, 6 free")
    assert "63%" in head


def test_escape_sequences_in_node_names_are_removed():
    shown = "\n".join(drawn([bars.bar_from_rest(node("a\x1b[2J\x1b]0;x\x07b", device(0, 0)))], 80))
    assert "ab" in shown
    assert "\x1b" not in shown
