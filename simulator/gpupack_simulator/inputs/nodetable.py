# SPDX-License-Identifier: Apache-2.0
"""Tables of nodes, read with a YAML mapping of their columns.

separator: tab              # as in a mapping of jobs, like header
columns:                    # ours: theirs
  name: sn                  # left out: node-1, node-2 … by the row
  gpus: gpu                 # of one node
  model: model              # left out: GPU
  gpuMemory: gpu_mem        # of one GPU; left out: 80 GiB
  cpus: cpu_milli           # left out: enough for everything
  memory: memory_mib        # of the node; left out: enough for everything
  count: number             # nodes of this kind; left out: 1
units: {cpus: milli, memory: MiB, gpuMemory: GiB}     # left out: cores, GiB, GiB
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, defstruct, field

from gpupack_placement import Node
from gpupack_simulator.inputs.csvfile import Line, TableForm, read_table
from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.mapping import Column, Name, check_form, given_columns, table_form
from gpupack_simulator.inputs.specs import Count, Gpus, NodeSpec, nodes_of
from gpupack_simulator.inputs.typed import one
from gpupack_simulator.inputs.yamlfile import Document

MemoryUnit = Literal["MiB", "GiB"]
Positive = Annotated[float, Meta(gt=0, le=1 << 40)]
_GIB: Final[dict[str, float]] = {"MiB": 1 / 1024, "GiB": 1.0}
_CORES: Final[dict[str, float]] = {"milli": 0.001, "cores": 1.0}
_BLANKS: Final = {"model": "GPU", "gpu_memory": None, "cpus": None, "memory": None, "count": 1}


class NodeColumns(Struct, rename="camel", forbid_unknown_fields=True):
    """Names of columns, by their contents."""

    gpus: Column
    name: Column | None = None
    model: Column | None = None
    gpu_memory: Column | None = None
    cpus: Column | None = None
    memory: Column | None = None
    count: Column | None = None


class Units(Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """Units of columns."""

    cpus: Literal["cores", "milli"] = "cores"
    memory: MemoryUnit = "GiB"
    gpu_memory: MemoryUnit = "GiB"


class NodeMapping(Struct, rename="camel", forbid_unknown_fields=True):
    """The mapping of a table of nodes."""

    columns: NodeColumns
    separator: Name = ","
    header: bool = True
    units: Units = Units()

    @property
    def form(self) -> TableForm:
        """Form of the table."""
        return table_form(self, blank=_BLANKS)


def read_node_mapping(path: Path) -> NodeMapping:
    """Read the mapping of a table of nodes.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    document = Document(faults)
    mapping = one(document.data, NodeMapping, "", document, faults)
    if mapping is not None:
        check_form(mapping, [*given_columns(mapping.columns).values()], document, faults)
    faults.check()
    if mapping is None:
        raise faults.fatal("is not a mapping")
    return mapping


def read_node_table(path: Path, mapping: NodeMapping) -> tuple[Node, ...]:
    """Read the nodes, in the order of the file.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    rows = read_table(_row_type(mapping), faults, mapping.form).lines
    found: dict[str, int] = {}
    nodes = [node for line in rows for node in _nodes(line, mapping, found, faults)]
    if not nodes and not len(faults):
        faults.add(0, "", "has no nodes")
    faults.check()
    return tuple(nodes)


def _row_type(mapping: NodeMapping) -> type[Struct]:
    types: dict[str, Any] = {
        "name": Name,
        "gpus": Gpus,
        "model": Name,
        "gpu_memory": Positive,
        "cpus": Positive,
        "memory": Positive,
        "count": Count,
    }
    columns = given_columns(mapping.columns)
    return defstruct(
        "NodeRow", [(ours, types[ours], field(name=theirs)) for ours, theirs in columns.items()]
    )


def _nodes(
    line: Line[Any], mapping: NodeMapping, found: dict[str, int], faults: Faults
) -> Iterator[Node]:
    """Yield the nodes of a row; `found`: names of earlier ones, with their lines."""
    row, units = line.row, mapping.units
    gpu_memory = getattr(row, "gpu_memory", None)
    cpus, memory = getattr(row, "cpus", None), getattr(row, "memory", None)
    spec = NodeSpec(
        name=getattr(row, "name", f"node-{line.number - mapping.header}"),
        gpus=row.gpus,
        gpu_memory=80.0 if gpu_memory is None else gpu_memory * _GIB[units.gpu_memory],
        model=getattr(row, "model", "GPU"),
        cpu=None if cpus is None else cpus * _CORES[units.cpus],
        memory=None if memory is None else memory * _GIB[units.memory],
        count=getattr(row, "count", 1),
    )
    for node in nodes_of(spec):
        if found.setdefault(node.name, line.number) != line.number:
            faults.add(
                line.number,
                str(mapping.columns.name),
                f"{node.name!r} stands on line {found[node.name]} too",
            )
        yield node
