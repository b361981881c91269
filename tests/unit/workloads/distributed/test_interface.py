# SPDX-License-Identifier: Apache-2.0
"""The choice of gloo's interface in the network of a node."""

import socket

import pytest

from gpupack_workloads.distributed import interface


def own_addresses():
    """Return this machine's IPv4 addresses by interface."""
    found = {name: interface._address_of(name) for _, name in socket.if_nameindex()}
    return {name: socket.inet_ntoa(each) for name, each in found.items() if each}


@pytest.fixture
def chosen(monkeypatch):
    """Return gloo's interface if the host's name has the given address, or none."""
    monkeypatch.setattr(interface, "interface_of", lambda address: f"of {address}")

    def choose(name_leads_to, address="10.0.0.7", **environ):
        def resolve(_):
            if not name_leads_to:
                raise OSError("unknown")
            return name_leads_to

        interface.keep_gloo_off_loopback(address, environ, resolve)
        return environ.get("GLOO_SOCKET_IFNAME")

    return choose


@pytest.mark.parametrize("name_leads_to", ["127.0.0.1", "127.0.1.1", "::1", ""])
def test_where_the_hosts_name_leads_to_loopback_gloo_gets_the_interface_of_the_peers(
    chosen, name_leads_to
):
    assert chosen(name_leads_to) == "of 10.0.0.7"


@pytest.mark.parametrize("name_leads_to", ["10.0.0.7", "fd00::7"])
def test_where_it_leads_to_another_address_gloo_chooses(chosen, name_leads_to):
    assert chosen(name_leads_to) is None


def test_a_gang_that_meets_on_loopback_stays_there(chosen):
    assert chosen("127.0.0.1", address="127.0.0.1") is None


def test_what_the_user_has_set_stays(chosen):
    assert chosen("127.0.0.1", GLOO_SOCKET_IFNAME="eth1") == "eth1"


def test_an_address_belongs_to_its_interface():
    own = own_addresses()
    assert own
    assert all(own[interface.interface_of(address)] == address for address in own.values())
    assert interface.interface_of("192.0.2.254") == ""
    assert interface.interface_of("2001:db8::1") == ""


def test_an_ipv6_address_belongs_to_its_interface(tmp_path, monkeypatch):
    path = tmp_path / "if_inet6"
    path.write_text("fd000000000000000000000000000002 02 40 00 80     eth0\n")
    monkeypatch.setattr(interface, "_IPV6", path)
    assert interface.interface_of("fd00::2") == "eth0"
    assert interface.interface_of("fd00::3") == ""
    monkeypatch.setattr(interface, "_IPV6", tmp_path / "none")
    assert interface.interface_of("fd00::2") == ""
