# SPDX-License-Identifier: Apache-2.0
"""Nodes of a table, and nodes as kubectl lists them."""

import json

import pytest

from gpupack_simulator import InvalidInput, InvalidParameter
from gpupack_simulator.inputs.nodesource import NodeSource, read_node_source

OPENB = "columns: {name: sn, gpus: gpu, model: model, cpus: cpu_milli, memory: memory_mib}\n"
LISTED = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata:
    name: a100
    labels:
      nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB
      nvidia.com/gpu.memory: "81920"
      zone: z1
  status:
    allocatable: {cpu: 95500m, memory: 1048576Ki, nvidia.com/gpu: "8", pods: "110"}
- apiVersion: v1
  kind: Node
  metadata: {name: cpu, labels: {}}
  status:
    allocatable: {cpu: "8", memory: 16Gi}
"""


@pytest.fixture
def read(tmp_path):
    def reading(text, mapping=None, name="nodes.yaml"):
        path = tmp_path / name
        path.write_text(text)
        if mapping is not None:
            (tmp_path / "mapping.yaml").write_text(mapping)
        return read_node_source(
            NodeSource(path=path, mapping=tmp_path / "mapping.yaml" if mapping else None)
        )

    return reading


def test_a_table_of_nodes_is_read_by_its_mapping(read):
    units = "units: {cpus: milli, memory: MiB}\n"
    table = "sn,gpu,model,cpu_milli,memory_mib\nn1,2,V100,96000,2048\nn2,0,,8000,\n"
    first, second = read(table, OPENB + units, "nodes.csv")
    assert (first.name, len(first.devices), first.cpu, first.memory) == ("n1", 2, 96_000, 2048)
    assert (first.devices[0].model, second.devices) == ("V100", ())


def test_rows_of_a_table_may_describe_several_unnamed_nodes(read):
    mapping = "columns: {gpus: g, count: n, gpuMemory: m}\n"
    nodes = read("g,n,m\n4,2,40\n8,1,80\n", mapping, "nodes.csv")
    assert [node.name for node in nodes] == ["node-1-0", "node-1-1", "node-2"]
    assert nodes[0].devices[0].memory == 40 * 1024


def test_two_nodes_of_one_name_are_reported(read):
    with pytest.raises(InvalidInput, match=r"nodes.csv:3: sn: 'a' stands on line 2 too"):
        read("sn,gpu\na,1\na,1\n", "columns: {name: sn, gpus: gpu}\n", "nodes.csv")


def test_a_blank_cell_is_reported_without_a_field_that_a_mapping_of_nodes_has_not(read):
    with pytest.raises(InvalidInput, match=r"nodes\.csv:2: gpu: '': expected") as refused:
        read("sn,gpu\na,\n", "columns: {name: sn, gpus: gpu}\n", "nodes.csv")
    assert "leaveOut" not in str(refused.value)


def test_nodes_are_read_as_kubectl_prints_them(read):
    gpus, cpus = read(LISTED)
    assert (gpus.name, gpus.cpu, gpus.memory, len(gpus.devices)) == ("a100", 95_500, 1024, 8)
    assert (gpus.devices[0].model, gpus.devices[0].memory) == ("NVIDIA-A100-SXM4-80GB", 81_920)
    assert (gpus.labels["zone"], cpus.devices, cpus.memory) == ("z1", (), 16 * 1024)


def test_json_is_read_too(read):
    item = {"metadata": {"name": "a"}, "status": {"allocatable": {"gpupack.dev/gpu": 2}}}
    (node,) = read(json.dumps({"items": [item]}), name="nodes.json")
    assert len(node.devices) == 2


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_time_sliced_gpus_count_as_the_boards_that_there_are(read, resource):
    replicas = 'nvidia.com/gpu.replicas: "4"\n      zone: z1'
    text = LISTED.replace("zone: z1", replicas).replace("A100-SXM4-80GB", "A100-SXM4-80GB-SHARED")
    gpus, _ = read(text.replace("nvidia.com/gpu:", f"{resource}:"))
    assert (len(gpus.devices), gpus.devices[0].model) == (2, "NVIDIA-A100-SXM4-80GB")


BROKEN = {
    "kind: Pod": "is no list as `kubectl get nodes -o yaml` prints it",
    "items: []": "nodes.yaml: items: there are no nodes",
    LISTED.replace("95500m", "many"): (
        "items[0].status.allocatable.cpu: 'many' is not a quantity such as 500m or 30Gi"
    ),
    LISTED.replace("name: cpu", "name: a100"): "there are several nodes a100",
    LISTED.replace("kind: Node", "kind: Pod", 1): "items[0].kind: is Pod, not Node",
}


@pytest.mark.parametrize("text", BROKEN)
def test_an_invalid_list_of_nodes_is_an_error(read, text):
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert BROKEN[text] in str(caught.value)


def test_a_table_needs_a_mapping(read):
    with pytest.raises(InvalidParameter, match=r"nodes\.csv needs --node-mapping"):
        read("sn,gpu\na,1\n", name="nodes.csv")


def test_a_mapping_needs_a_table(tmp_path):
    with pytest.raises(InvalidParameter, match="--node-mapping is for the table of --nodes"):
        read_node_source(NodeSource(mapping=tmp_path / "mapping.yaml"))
