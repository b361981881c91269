# SPDX-License-Identifier: Apache-2.0
"""Nodes and their GPUs as bars, with one character for each GPU.

gpupack-1  H100 80GB HBM3  ████▄··x   3/8 free  56%  71 °C   2,100 W
█ allocated   ▄ partly allocated   · free   x gets no new work
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpupack_cli import figures
from gpupack_cli.text import plain
from gpupack_crds.kinds import GpuNode
from gpupack_restapi.nodes import NodeView, Status

FULL, PART, FREE, UNUSABLE = "█", "▄", "·", "x"
STYLES: Final = {FULL: "green", PART: "cyan", FREE: "dim", UNUSABLE: "red"}
LEGEND: Final = f"{FULL} allocated   {PART} partly   {FREE} free   {UNUSABLE} gets no new work"
WHOLE: Final = 100.0
MAX_CELLS: Final = 64
"""Maximum characters of one node: with MIG slices there can be more devices, which still count."""

MODEL_FROM: Final = 60
"""Minimum columns of a terminal for models."""

WIDE_FROM: Final = 110
"""Minimum columns of a terminal for the driver's figures."""

MAX_BAR: Final = 40
"""Maximum characters of the bar above the nodes."""

BAR_MARGIN: Final = 20
"""Characters next to that bar."""

HEAD_LINES: Final = 5
"""Lines above and below the nodes."""


class NodeBar(msgspec.Struct, frozen=True):
    """A node's data for its bar.

    `cells` has a character for each GPU; `percent` is the allocated part; the driver's figures are
    None where they are unknown.
    """

    name: str
    model: str
    cells: str
    free: int
    gpus: int
    percent: float
    ready: bool = True
    hottest_celsius: float | None = None
    power_watts: float | None = None
    busy_percent: float | None = None


def bar_from_rest(node: NodeView) -> NodeBar:
    """Return the bar of a node in the REST API's answer."""
    takes_work = {"Healthy", "Degraded"}
    cells = "".join(
        UNUSABLE
        if each.health not in takes_work
        else FREE
        if each.free_percent >= WHOLE
        else PART
        if each.free_percent > 0
        else FULL
        for each in node.devices
    )
    hot = [d.temperature_celsius for d in node.devices if d.temperature_celsius is not None]
    watts = [d.power_watts for d in node.devices if d.power_watts is not None]
    busy = [d.busy_percent for d in node.devices if d.busy_percent is not None]
    return NodeBar(
        name=node.node_name,
        model=node.gpu_type,
        cells=cells,
        free=node.available_gpus,
        gpus=node.total_gpus,
        percent=node.utilization,
        ready=node.ready,
        hottest_celsius=max(hot, default=None),
        power_watts=sum(watts) if watts else None,
        busy_percent=sum(busy) / len(busy) if busy else None,
    )


def bar_from_gpunode(node: GpuNode) -> NodeBar:
    """Return the bar of a GPUNode, which has only counts of GPUs, and no sizes of shares."""
    status = node.status
    rest = max(status.gpus - status.held - status.shared - status.free, 0)
    cells = FULL * status.held + PART * status.shared + FREE * status.free + UNUSABLE * rest
    given = (status.held + status.shared) * WHOLE / status.gpus if status.gpus else 0.0
    return NodeBar(
        name=node.metadata.name,
        model=status.model,
        cells=cells[: status.gpus],
        free=status.free,
        gpus=status.gpus,
        percent=round(given, 1),
        ready=status.stale_since is None,
    )


def sort_bars(bars: Iterable[NodeBar], *, by: str) -> list[NodeBar]:
    """Sort bars by name, by the allocated part, or by free GPUs."""
    keys = {
        "name": lambda bar: (bar.name,),
        "used": lambda bar: (-bar.percent, bar.name),
        "free": lambda bar: (-bar.free, bar.name),
    }
    return sorted(bars, key=keys[by])


def render_bars(
    bars: Sequence[NodeBar],
    *,
    status: Status | None,
    moment: dt.datetime,
    width: int | None,
    lines: int | None,
    stale: str = "",
) -> Group:
    """Return the whole view, for a terminal of the given columns and lines.

    None: nothing is cut, as in a pipe. `stale`: text about the age of old data.
    """
    head = HEAD_LINES + bool(stale)
    room = len(bars) if lines is None else max(lines - head, 1)
    shown = bars[:room]
    left_out = len(bars) - len(shown)
    more = f"and {left_out} more nodes; --sort and --filter choose others" if left_out else ""
    parts: list[RenderableType] = [
        _head(bars, status, moment, width),
        *([Text(stale, style="bold red", no_wrap=True, overflow="ellipsis")] if stale else []),
        _nodes(shown, width),
        Text(more, style="dim"),
    ]
    return Group(*parts, Text(LEGEND, style="dim"))


def _head(
    bars: Sequence[NodeBar], status: Status | None, moment: dt.datetime, width: int | None
) -> Text:
    gpus = status.total_gpus if status else sum(bar.gpus for bar in bars)
    free = status.available_gpus if status else sum(bar.free for bar in bars)
    whole = sum(bar.percent * bar.gpus for bar in bars) / gpus if gpus else 0.0
    percent = status.utilization.gpu_utilization if status else whole
    counted = f"{figures.count(gpus, 'GPU')} in {figures.count(len(bars), 'node')}"
    text = Text(f"{counted}, {figures.whole(free)} free  ", style="bold")
    left = MAX_BAR if width is None else width - len(text.plain) - BAR_MARGIN
    room = max(min(left, MAX_BAR), 0)
    filled = round(room * min(percent, WHOLE) / WHOLE)
    text.append(FULL * filled, style="green").append(FREE * (room - filled), style="dim")
    return text.append(f" {figures.percent(percent)}  {moment.astimezone():%H:%M:%S}", style="bold")


def _nodes(bars: Sequence[NodeBar], width: int | None) -> Table:
    built = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    widest = min(max((len(bar.cells) for bar in bars), default=0), MAX_CELLS + 1)
    name_width = None if width is None else max(width // 3, 8)
    built.add_column(no_wrap=True, overflow="ellipsis", max_width=name_width)
    if _is_from(MODEL_FROM, width):
        model_width = None if width is None else width // 4
        built.add_column(no_wrap=True, overflow="ellipsis", style="dim", max_width=model_width)
    built.add_column(no_wrap=True, min_width=widest if width is None else min(widest, width // 2))
    built.add_column(no_wrap=True, justify="right")
    built.add_column(no_wrap=True, justify="right")
    for _ in range(3 if _is_from(WIDE_FROM, width) else 0):
        built.add_column(no_wrap=True, justify="right")
    for bar in bars:
        built.add_row(*_row(bar, width))
    return built


def _is_from(columns: int, width: int | None) -> bool:
    """Return whether the terminal has at least this many columns."""
    return width is None or width >= columns


def _row(bar: NodeBar, width: int | None) -> list[Text]:
    row = [Text(plain(bar.name), style="" if bar.ready else "red")]
    if _is_from(MODEL_FROM, width):
        row.append(Text(plain(bar.model).removeprefix("NVIDIA ")))
    row += [_cells(bar.cells), Text(f"{bar.free}/{bar.gpus} free")]
    row.append(Text(figures.percent(bar.percent) if bar.ready else "not ready"))
    return [*row, *_figures(bar)] if _is_from(WIDE_FROM, width) else row


def _cells(cells: str) -> Text:
    text = Text()
    for cell in cells[:MAX_CELLS]:
        text.append(cell, style=STYLES.get(cell, ""))
    return text.append("…") if len(cells) > MAX_CELLS else text


def _figures(bar: NodeBar) -> tuple[Text, Text, Text]:
    hot, watts, busy = bar.hottest_celsius, bar.power_watts, bar.busy_percent
    return (
        Text("" if busy is None else f"{figures.percent(busy)} busy"),
        Text("" if hot is None else figures.temperature(hot)),
        Text("" if watts is None else figures.power(watts)),
    )
