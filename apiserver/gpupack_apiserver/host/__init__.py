# SPDX-License-Identifier: Apache-2.0
"""The server of one machine with GPUs, without a cluster: `python -m gpupack_apiserver.host`.

    processes ─ gpupack ─► the ledger's folder ◄─ reservations ─ routes ◄─ token ─ callers

The ledger is that of the Python library's backend `this-machine` (`gpupack.host`): this process is
one of those that share it, and keeps no other state. It can be killed at any time.

* `machine`: the holders, read again for each call. `token`: authentication of callers.
* `routes`: the calls that differ from the cluster's server. `app`: all calls.
"""
