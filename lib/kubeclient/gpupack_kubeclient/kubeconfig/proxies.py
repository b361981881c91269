# SPDX-License-Identifier: Apache-2.0
"""The proxy of a request, by the rules of Go, which are kubectl's.

They differ from those of Python's libraries: NO_PROXY may hold networks and ports, and a server on
loopback never goes through a proxy from a variable.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

SCHEMES: Final = frozenset({"http", "https"})
"""Supported schemes of proxies."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

PORTS: Final = {"http": 80, "https": 443}


class ProxyUnusable(ValueError):
    """A proxy's address is not valid, or has a scheme that gpupack does not support."""


def proxy_for(server: str, environ: Mapping[str, str]) -> str:
    """Return the proxy that the variables name for a server; empty: none.

    Raises:
        ProxyUnusable: the proxy cannot be used; the text names the variable.
    """
    parts = urlsplit(server)
    name, proxy = _variable(f"{parts.scheme}_proxy", environ)
    _, excluded = _variable("no_proxy", environ)
    if not proxy or not _is_proxied(parts, excluded):
        return ""
    return checked(proxy if "://" in proxy else f"http://{proxy}", name)


def checked(proxy: str, name: str) -> str:
    """Return the proxy's address.

    Raises:
        ProxyUnusable: the address cannot be used; the text names its source.
    """
    try:
        parts = urlsplit(proxy)
        usable = bool(parts.hostname) and (parts.port or True)
    except ValueError:
        # The library's error repeats parts of the address, including the password.
        raise ProxyUnusable(f"{name}: {without_password(proxy)!r} is no address") from None
    if parts.scheme not in SCHEMES or not usable:
        raise ProxyUnusable(
            f"{name}: {without_password(proxy)!r} is no http:// or https:// address; gpupack uses "
            "no other proxies"
        )
    return proxy


def without_password(proxy: str) -> str:
    """Return the scheme, the host and the port, even of an address that cannot be parsed."""
    scheme = found[0] if (found := _SCHEME.match(proxy)) else ""
    host = proxy.removeprefix(scheme).rpartition("@")[2]
    return scheme + re.split(r"[/?#]", host)[0]


def _variable(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the name that is set, upper case first, and its value."""
    for each in (name.upper(), name):
        if value := environ.get(each, "").strip():
            return each, value
    return name.upper(), ""


def _is_proxied(server: SplitResult, excluded: str) -> bool:
    host = (server.hostname or "").lower()
    port = server.port or PORTS.get(server.scheme, 0)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    entries = [each.strip().lower() for each in excluded.split(",")]
    return not any(_excludes(each, host, address, port) for each in entries if each)


def _excludes(
    entry: str,
    host: str,
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None,
    port: int,
) -> bool:
    """Return whether an entry of NO_PROXY covers a server."""
    if entry == "*":
        return True
    if "/" in entry:
        network = _network(entry)
        return network is not None and address is not None and address in network
    name, of_port = _split(entry)
    if of_port not in {"", str(port)}:
        return False
    if (excluded := _address(name)) is not None:
        return excluded == address
    suffix = name.removeprefix("*")
    if suffix.startswith("."):
        return host.endswith(suffix)
    return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))


def _split(entry: str) -> tuple[str, str]:
    """Return a host and a port; an IPv6 address with a port stands in brackets."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.removeprefix(":")
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host, port
    return entry, ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None
