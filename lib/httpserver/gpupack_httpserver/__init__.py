# SPDX-License-Identifier: Apache-2.0
"""HTTP for untrusted callers: authentication, authorization and limits on resource use.

    listener ─ handshakes, peer_limits ─► connections ─► uvicorn ─► the component's routes
                                                                      └─► access ─► API server

* `server`: a server that is one of several in a process.
* `listener`, `handshakes`, `peer_limits`: TCP and TLS with limits for each address.
* `connections`: one connection, with limits that apply before any route runs.
* `access`, `signing_keys`: the identity of a caller, according to the API server.
* `metrics`, `certificate`: /metrics of components that serve nothing else.
"""
