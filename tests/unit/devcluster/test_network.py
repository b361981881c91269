# SPDX-License-Identifier: Apache-2.0
"""Addresses and rules."""

import ipaddress

import pytest

from gpupack_devcluster import network
from gpupack_devcluster.errors import Occupied
from gpupack_devcluster.settings import Addresses

ADDRESSES = Addresses()


def test_all_ranges_are_within_the_test_range_and_do_not_overlap():
    ranges = [ADDRESSES.nodes, ADDRESSES.services, ADDRESSES.simulated_pods, ADDRESSES.pods]
    assert all(r.subnet_of(ADDRESSES.everything) for r in ranges)
    assert not any(a.overlaps(b) for a in ranges for b in ranges if a is not b)


def test_every_node_up_to_the_maximum_has_its_own_address_and_pod_range():
    indexes = range(1, ADDRESSES.maximum_nodes + 1)
    addresses = {ADDRESSES.node(index) for index in indexes}
    pods = {ADDRESSES.pods_of(index) for index in indexes}
    assert len(addresses) == len(pods) == ADDRESSES.maximum_nodes
    assert all(ipaddress.ip_address(a) in ADDRESSES.nodes for a in addresses)


def test_interface_names_fit_into_the_kernels_fifteen_characters():
    assert len(ADDRESSES.veth(ADDRESSES.maximum_nodes)) <= 15


def test_without_masquerade_packets_beyond_the_bridge_are_rejected():
    rules = network.rules(ADDRESSES, masquerade=False)
    assert 'iifname "gpupack0" ip daddr != 198.18.0.0/15' in rules
    assert "reject" in rules
    assert "masquerade" not in rules


def test_with_masquerade_packets_beyond_the_bridge_get_the_hosts_address():
    rules = network.rules(ADDRESSES, masquerade=True)
    assert "ip saddr 198.18.0.0/15 ip daddr != 198.18.0.0/15 masquerade" in rules
    assert "reject" not in rules


def test_a_node_has_routes_over_the_bridge_to_the_pods_of_all_other_nodes():
    assert network.peer_routes(ADDRESSES, 2, [1, 2, 3]) == (
        "route replace 198.19.1.0/24 via 198.18.0.11\nroute replace 198.19.3.0/24 via 198.18.0.13\n"
    )


def test_the_bridge_of_another_checkout_does_not_change(monkeypatch, tmp_path):
    monkeypatch.setattr(network, "owner", lambda _: "/elsewhere/.dev")
    with pytest.raises(Occupied, match=r"--state /elsewhere/\.dev down"):
        network.put_up(ADDRESSES, tmp_path, masquerade=False)
