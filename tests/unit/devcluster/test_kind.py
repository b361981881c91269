# SPDX-License-Identifier: Apache-2.0
"""What kind is told."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from gpupack_devcluster.errors import ToolMissing
from gpupack_devcluster.kind import (
    KindCluster,
    archived_ids,
    cluster_config,
    process_pattern,
)
from gpupack_devcluster.settings import ClusterSettings, Paths

SETTINGS = ClusterSettings(paths=Paths(Path("/s")))


def test_pods_run_on_workers_of_the_wanted_number():
    roles = [node["role"] for node in cluster_config(SETTINGS, 3)["nodes"]]
    assert roles == ["control-plane", "worker", "worker", "worker"]


def test_what_containers_lock_on_any_node_is_seen_on_the_host():
    for node in cluster_config(SETTINGS, 2)["nodes"]:
        assert {"hostPath": "/s/locks", "containerPath": "/s/locks"} in node["extraMounts"]


@pytest.mark.parametrize(
    "line",
    ["kube-controller-manager --x", "/usr/bin/kube-controller-manager", "kube-controller-manager"],
)
def test_a_daemon_is_found_however_it_was_called(line):
    assert re.search(process_pattern("kube-controller-manager"), line)


@pytest.mark.parametrize("line", ["kubelet-helper", "sh -c kubelet", "/usr/bin/containerd-shim"])
def test_another_process_is_not_taken_for_a_daemon(line):
    assert not re.search(process_pattern("kubelet"), line)
    assert not re.search(process_pattern("containerd"), line)


def test_a_host_without_kind_is_told_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolMissing, match="CLUSTER=kind needs kind"):
        KindCluster(SETTINGS).up(nodes=2, kwok_nodes=0)


DOCKER = """\
#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
case "$*" in
"get nodes"*) echo gpupack-worker gpupack-control-plane ;;
*inspecti*) grep -q "$6" "$HELD" ;;
esac
"""
"""Stands for docker and for kind."""


def archive(path, digest):
    with tarfile.open(path, "w") as tar:
        text = json.dumps([{"Config": f"{digest}.json", "RepoTags": ["x:dev"]}]).encode()
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return path


def test_an_archive_tells_the_ids_of_its_images(tmp_path):
    assert archived_ids(archive(tmp_path / "x.tar", "ab12")) == ("sha256:ab12",)


def test_an_archive_is_loaded_where_a_node_lacks_its_image(tmp_path, monkeypatch):
    calls, held = tmp_path / "calls", tmp_path / "held"
    held.write_text("sha256:aa11\n")
    for tool in ("docker", "kind"):
        (tmp_path / tool).write_text(DOCKER)
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.setenv("HELD", str(held))
    there = archive(tmp_path / "there.tar", "aa11")
    new = archive(tmp_path / "new.tar", "bb22")
    KindCluster(SETTINGS).load([str(there), str(new), "x:dev"])
    loads = [line for line in calls.read_text().splitlines() if line.startswith("kind load")]
    assert loads == [
        f"kind load image-archive {new} --name gpupack",
        "kind load docker-image x:dev --name gpupack",
    ]
