# SPDX-License-Identifier: Apache-2.0
"""Nodes for a scenario from another file: a table with a mapping, or a cluster's list of nodes."""

from dataclasses import dataclass
from pathlib import Path

from gpupack_placement import Node
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.inputs.kubenodes import read_kube_nodes
from gpupack_simulator.inputs.nodetable import read_node_mapping, read_node_table

_LISTS = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSource:
    """The options `--nodes` and `--node-mapping`. None: not given."""

    path: Path | None = None
    mapping: Path | None = None


def read_node_source(source: NodeSource) -> tuple[Node, ...] | None:
    """Read the nodes; None: no file was given.

    Raises:
        InvalidInput: every fault of the file.
        InvalidParameter: an option has no effect, or a required one is missing.
    """
    if source.path is None:
        if source.mapping is not None:
            raise InvalidParameter("--node-mapping is for the table of --nodes; there is none")
        return None
    if source.mapping is not None:
        return read_node_table(source.path, read_node_mapping(source.mapping))
    if not source.path.name.lower().removesuffix(".gz").endswith(_LISTS):
        raise InvalidParameter(
            f"{source.path.name} needs --node-mapping, a YAML that names its columns; or give the "
            "output of `kubectl get nodes -o yaml` in a file whose name ends in .yaml or .json"
        )
    return read_kube_nodes(source.path)
