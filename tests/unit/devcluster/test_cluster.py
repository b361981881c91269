# SPDX-License-Identifier: Apache-2.0
import os
import subprocess

import pytest

from gpupack_devcluster import host, network, processes
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.locking import locked
from gpupack_devcluster.settings import ClusterSettings, Paths


@pytest.fixture
def taken_down(monkeypatch):
    folders = []
    monkeypatch.setattr(network, "take_down", lambda _, state: folders.append(str(state)))
    monkeypatch.setattr(host, "restore", lambda: None)
    return folders


@pytest.fixture
def marked_process():
    """Return a function that starts a process with the mark of a cluster."""
    started = []

    def start(state):
        environment = {**os.environ, processes.MARK: str(state), processes.UNIT: "etcd"}
        started.append(subprocess.Popen(["sleep", "60"], env=environment))
        assert processes.scan(state)

    yield start
    for process in started:
        process.kill()
        process.wait()


def owned_by(monkeypatch, folder):
    monkeypatch.setattr(network, "owner", lambda _: folder)


def test_the_remains_of_a_deleted_checkouts_cluster_are_removed(monkeypatch, tmp_path, taken_down):
    deleted = str(tmp_path / "deleted" / ".dev")
    owned_by(monkeypatch, deleted)
    Cluster(ClusterSettings(Paths(tmp_path / "mine"))).end_abandoned()
    assert taken_down == [deleted]


@pytest.mark.parametrize("owner", [None, ""])
def test_a_host_without_a_cluster_does_not_change(monkeypatch, tmp_path, taken_down, owner):
    owned_by(monkeypatch, owner)
    Cluster(ClusterSettings(Paths(tmp_path / "mine"))).end_abandoned()
    assert taken_down == []


def test_the_remains_of_another_checkouts_stopped_cluster_are_removed(
    monkeypatch, tmp_path, taken_down
):
    owned_by(monkeypatch, str(tmp_path))
    Cluster(ClusterSettings(Paths(tmp_path / "mine"))).end_abandoned()
    assert taken_down == [str(tmp_path)]


def test_another_checkouts_running_cluster_stays(monkeypatch, tmp_path, taken_down, marked_process):
    marked_process(tmp_path)
    owned_by(monkeypatch, str(tmp_path))
    Cluster(ClusterSettings(Paths(tmp_path / "mine"))).end_abandoned()
    assert taken_down == []


def test_another_checkouts_starting_cluster_stays(monkeypatch, tmp_path, taken_down):
    owned_by(monkeypatch, str(tmp_path))
    with locked(Paths(tmp_path).lock):
        Cluster(ClusterSettings(Paths(tmp_path / "mine"))).end_abandoned()
    assert taken_down == []


def test_our_own_bridge_stays(monkeypatch, tmp_path, taken_down):
    owned_by(monkeypatch, str(tmp_path))
    Cluster(ClusterSettings(Paths(tmp_path))).end_abandoned()
    assert taken_down == []
