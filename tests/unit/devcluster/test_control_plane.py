# SPDX-License-Identifier: Apache-2.0
"""Command lines of the control plane."""

import stat
from pathlib import Path

import pytest

from gpupack_devcluster.control_plane import (
    arguments,
    corefile,
    give_to_caller,
    host_component,
)
from gpupack_devcluster.driver import HostComponent
from gpupack_devcluster.errors import UnknownName
from gpupack_devcluster.settings import ClusterSettings, Paths

SETTINGS = ClusterSettings(paths=Paths(Path("/s")))


@pytest.mark.parametrize("component", HostComponent)
def test_nothing_listens_beyond_the_bridge(component):
    assert not any("0.0.0.0" in argument for argument in arguments(component, SETTINGS))


@pytest.mark.parametrize("component", [HostComponent.CONTROLLER_MANAGER, HostComponent.SCHEDULER])
def test_daemons_that_only_the_host_calls_listen_on_loopback(component):
    assert "--bind-address=127.0.0.1" in arguments(component, SETTINGS)


@pytest.mark.parametrize("component", [HostComponent.CONTROLLER_MANAGER, HostComponent.SCHEDULER])
def test_daemons_that_are_not_restarted_use_no_lease(component):
    assert any(a.startswith("--leader-elect=false") for a in arguments(component, SETTINGS))


def test_a_silent_node_is_not_ready_after_two_leases():
    assert "--node-monitor-grace-period=8s" in arguments(HostComponent.CONTROLLER_MANAGER, SETTINGS)


def test_dns_has_no_cache_and_forwards_no_queries():
    assert "cache" not in corefile(SETTINGS)
    assert "forward" not in corefile(SETTINGS)


def test_with_masquerade_dns_forwards_to_the_hosts_servers():
    settings = ClusterSettings(paths=Paths(Path("/s")), masquerade=True)
    assert "forward . /etc/resolv.conf" in corefile(settings)


def test_an_unknown_component_is_answered_with_the_known_ones():
    with pytest.raises(UnknownName, match="no component 'kubelet' on the host: etcd, kube-api"):
        host_component("kubelet")


def test_under_sudo_the_kubeconfig_belongs_to_the_caller(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr("os.chown", lambda *arguments: given.append(arguments))
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "1001")
    give_to_caller(tmp_path)
    assert given == [(tmp_path, 1000, 1001)]
    assert stat.S_ISDIR(tmp_path.stat().st_mode)
