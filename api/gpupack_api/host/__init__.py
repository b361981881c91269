# SPDX-License-Identifier: Apache-2.0
"""Serves one machine with GPUs, without a cluster: `python -m gpupack_api.host`.

    processes ─ gpupack ─► the ledger's folder ◄─ reservations ─ routes ◄─ token ─ callers

The ledger is that of the Python library's backend `this-machine` (`gpupack.host`): this process is
one of those that share it, and keeps nothing that is not there. It can be killed at any moment.

* `machine`: who holds what, looked at anew for each call. `token`: who may call.
* `routes`: the calls that are not as the cluster's server answers them. `app`: all of them.
"""
