# SPDX-License-Identifier: Apache-2.0
"""Calls of kind."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from gpupack_devcluster.errors import ToolMissing
from gpupack_devcluster.kind import (
    KindCluster,
    cluster_config,
    process_pattern,
    read_archive,
)
from gpupack_devcluster.settings import ClusterSettings, Paths

SETTINGS = ClusterSettings(paths=Paths(Path("/s")))


def test_pods_run_on_workers_of_the_wanted_number():
    roles = [node["role"] for node in cluster_config(SETTINGS, 3)["nodes"]]
    assert roles == ["control-plane", "worker", "worker", "worker"]


def test_locks_of_containers_on_any_node_are_visible_on_the_host():
    for node in cluster_config(SETTINGS, 2)["nodes"]:
        assert {"hostPath": "/s/locks", "containerPath": "/s/locks"} in node["extraMounts"]


@pytest.mark.parametrize(
    "line",
    ["kube-controller-manager --x", "/usr/bin/kube-controller-manager", "kube-controller-manager"],
)
def test_a_daemon_is_found_by_any_form_of_its_command_line(line):
    assert re.search(process_pattern("kube-controller-manager"), line)


@pytest.mark.parametrize("line", ["kubelet-helper", "sh -c kubelet", "/usr/bin/containerd-shim"])
def test_another_process_is_not_found_as_a_daemon(line):
    assert not re.search(process_pattern("kubelet"), line)
    assert not re.search(process_pattern("containerd"), line)


def test_a_host_without_kind_gets_an_error(monkeypatch):
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
"""Replacement of docker and of kind."""


def archive(path, digest, name="localhost/x:dev"):
    with tarfile.open(path, "w") as tar:
        text = json.dumps([{"Config": f"{digest}.json", "RepoTags": [name]}]).encode()
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return path


def test_an_archives_manifest_has_the_ids_of_its_images(tmp_path):
    assert read_archive(archive(tmp_path / "x.tar", "ab12")).ids == ("sha256:ab12",)


@pytest.fixture
def loads(tmp_path, monkeypatch):
    """Return a function that loads images into kind, with one worker, and returns the commands."""
    calls, held = tmp_path / "calls", tmp_path / "held"
    held.write_text("sha256:aa11\n")
    for tool in ("docker", "kind"):
        (tmp_path / tool).write_text(DOCKER)
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.setenv("HELD", str(held))

    def load(*images):
        KindCluster(SETTINGS).load([str(image) for image in images])
        return [line for line in calls.read_text().splitlines() if line.startswith("kind load")]

    return load


EVERYWHERE = "--name gpupack --nodes gpupack-control-plane,gpupack-worker"


def test_an_archive_is_loaded_where_a_node_lacks_its_image(tmp_path, loads):
    there = archive(tmp_path / "there.tar", "aa11")
    new = archive(tmp_path / "new.tar", "bb22")
    assert loads(there, new, "x:dev") == [
        f"kind load image-archive {new} {EVERYWHERE}",
        f"kind load docker-image x:dev {EVERYWHERE}",
    ]


def test_images_of_workloads_are_loaded_on_workers_only(tmp_path, loads):
    new = archive(tmp_path / "new.tar", "bb22", "docker.io/gpupack/workloads-test:dev")
    worker = "--name gpupack --nodes gpupack-worker"
    assert loads(new, "gpupack/workloads:dev") == [
        f"kind load image-archive {new} {worker}",
        f"kind load docker-image gpupack/workloads:dev {worker}",
    ]
