# SPDX-License-Identifier: Apache-2.0
"""The host's side of the network: a bridge, a veth pair for each node, and a fence.

No packet of the cluster may leave the machine. Until kube-proxy has its rules, packets to Service
addresses follow the default route; so do packets to pods of a node that is off. Therefore the whole
range is unreachable on the host, from before anything starts until everything has ended: a node's
only way out is this host's bridge. Packets from the bridge to another interface are rejected, or,
with masquerade, sent with the host's address.

The bridge has the cluster's state folder as its alias, which distinguishes another checkout's
cluster from this one.
"""

import json
import socket
from pathlib import Path

from gpupack_devcluster.commands import run, succeeds
from gpupack_devcluster.errors import Occupied
from gpupack_devcluster.settings import Addresses

TABLE = "gpupack_devcluster"
BRIDGE_MAC = "02:67:70:75:70:01"  # locally administered


def put_up(addresses: Addresses, state: Path, *, masquerade: bool) -> None:
    """Create fence, bridge and rules; idempotent."""
    check_owner(addresses, state)
    run(["ip", "route", "replace", "unreachable", str(addresses.everything)])
    if not link_exists(addresses.bridge):
        # By default a bridge takes the lowest address of its ports. It would change as nodes go,
        # and the others would use the old one until their next lookup.
        run(["ip", "link", "add", addresses.bridge, "address", BRIDGE_MAC, "type", "bridge"])
        run(["ip", "link", "set", addresses.bridge, "alias", str(state)])
    gateway = f"{addresses.host}/{addresses.nodes.prefixlen}"
    run(["ip", "address", "replace", gateway, "dev", addresses.bridge])
    run(["ip", "link", "set", addresses.bridge, "up"])
    run(["nft", "-f", "-"], text_input=rules(addresses, masquerade=masquerade))


def rules(addresses: Addresses, *, masquerade: bool) -> str:
    """Return our nftables table, which is replaced as a whole."""
    beyond = f"ip daddr != {addresses.everything}"
    chain = (
        "chain outward { type nat hook postrouting priority srcnat;"
        f" ip saddr {addresses.everything} {beyond} masquerade; }}"
        if masquerade
        else "chain fence { type filter hook prerouting priority filter;"
        f' iifname "{addresses.bridge}" {beyond} fib daddr type unicast reject; }}'
    )
    return f"table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{chain}\n}}\n"


def connect(addresses: Addresses, index: int, pid: int) -> None:
    """Connect a veth pair to the network namespace of a node's first process."""
    veth = addresses.veth(index)
    if link_exists(veth):
        run(["ip", "link", "delete", veth])
    peer = ["peer", "name", "eth0", "netns", str(pid)]
    run(["ip", "link", "add", veth, "type", "veth", *peer])
    run(["ip", "link", "set", veth, "master", addresses.bridge, "up"])
    run(["ip", "route", "replace", addresses.pods_of(index), "via", addresses.node(index)])


def node_script(addresses: Addresses, index: int) -> str:
    """Return shell commands that bring the network up inside a node."""
    address = f"{addresses.node(index)}/{addresses.nodes.prefixlen}"
    return (
        "ip link set lo up\n"
        f"ip address add {address} dev eth0\n"
        "ip link set eth0 up\n"
        f"ip route add default via {addresses.host}\n"
        "echo 1 > /proc/sys/net/ipv4/ip_forward\n"
        "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter\n"
    )


def peer_routes(addresses: Addresses, index: int, running: list[int]) -> str:
    """Return a batch for `ip`, run in a node: routes over the bridge to the pods of other nodes."""
    others = [other for other in running if other != index]
    return "".join(
        f"route replace {addresses.pods_of(other)} via {addresses.node(other)}\n"
        for other in others
    )


def take_down(addresses: Addresses, state: Path) -> None:
    """Remove what put_up created; the fence last. Routes over the bridge go with it."""
    if owner(addresses) not in {None, str(state)}:
        return
    for link in links():
        if link.startswith(f"{addresses.bridge}-"):
            succeeds(["ip", "link", "delete", link])
    succeeds(["ip", "link", "delete", addresses.bridge])
    succeeds(["nft", "delete", "table", "ip", TABLE])
    succeeds(["ip", "route", "delete", "unreachable", str(addresses.everything)])


def check_owner(addresses: Addresses, state: Path) -> None:
    """Refuse a host on which another checkout's cluster is up."""
    other = owner(addresses)
    if other not in {None, str(state)}:
        raise Occupied(
            f"another cluster is up on this host, with state in {other or 'an unknown place'}: "
            f"take it down first (gpupack-devcluster --state {other} down)"
        )


def owner(addresses: Addresses) -> str | None:
    """Return the state folder of the cluster that owns the bridge; None without a bridge."""
    if not link_exists(addresses.bridge):
        return None
    shown = json.loads(run(["ip", "-json", "link", "show", addresses.bridge]))
    return str(shown[0].get("ifalias", ""))


def link_exists(name: str) -> bool:
    """Return whether the host has a network interface of this name."""
    return name in links()


def links() -> list[str]:
    """Return names of the host's network interfaces."""
    return [name for _, name in socket.if_nameindex()]
