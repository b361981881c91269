# SPDX-License-Identifier: Apache-2.0
"""HTTP for callers who are not trusted: who calls, whether they may, and what one may cost.

    listener ─ handshakes, peer_limits ─► connections ─► uvicorn ─► the routes of who serves
                                                                      └─► access ─► API server

* `server`: a server that is one of several in a process.
* `listener`, `handshakes`, `peer_limits`: TCP and TLS within bounds for each address.
* `connections`: one connection, bounded before any route runs.
* `access`, `signing_keys`: who the API server says that a caller is.
* `metrics`, `certificate`: /metrics of parts that serve nothing else.
"""
