# SPDX-License-Identifier: Apache-2.0
"""Asynchronous, typed access to the Kubernetes API.

The official client reads kubeconfigs; this package adds what it lacks for a scheduler: a transport
that loads nothing else in a cluster, decoding straight from bytes into small typed views, a
reflector that says how fresh it is, and one error tree.

* `client.Api`: one connection; get, list, create, replace, patch, delete, watch.
* `transport`: how requests reach the API server.
* `clock.ServerClock`: the API server's time, for whoever compares moments that it wrote.
* `resources.Resource`: where a kind lives and how it is decoded.
* `objects`: typed views of the built-in objects, holding only the fields that gpupack reads.
* `lines`, `listing`: watches and lists that no tenant's object makes larger than memory.
* `environment.Environment`: settings from environment variables.
* `reflector.Reflector`: list and watch into a `reflector.Store`.
* `metrics`: what could not be read, counted, and the port that shows it.
* `heartbeat`, `leader`: Leases.
* `errors`: everything that can go wrong, as one tree.
"""
