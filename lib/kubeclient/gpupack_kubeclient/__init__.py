# SPDX-License-Identifier: Apache-2.0
"""Asynchronous, typed access to the Kubernetes API.

The official client only reads kubeconfigs here. This package adds what a scheduler needs: a light
transport, decoding from bytes straight into small typed views, a reflector that knows how fresh it
is, and one error tree. In a cluster the transport loads no part of the official client.

* `client.Api`: one connection with get, list, create, replace, patch, delete and watch.
* `transport`: sends requests to the API server.
* `clock.ServerClock`: the API server's time, for comparisons with timestamps that it wrote.
* `resources.Resource`: the path of a kind and the type that it is decoded into.
* `objects`: typed views of the built-in objects with only the fields that gpupack reads.
* `lines`, `listing`: watches and lists with bounded memory, whatever the size of an object.
* `environment.Environment`: settings from environment variables.
* `reflector.Reflector`: lists and watches into a `reflector.Store`.
* `metrics`: counters of unreadable objects and of requests.
* `heartbeat`, `leader`: Leases.
* `errors`: all errors of this package, as one tree.
"""

__version__ = "0.2.0"
"""The version of all packages of gpupack, which the images do not have as metadata."""
