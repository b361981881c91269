# SPDX-License-Identifier: Apache-2.0
"""Checks of an installation: its state is read once, and pure functions check it.

* `views`: the objects with the fields that are read.
* `cluster_state`: everything that was read, or why it could not be.
* `reading`: reads it.
* `rest_call`: calls the REST API as the caller would.
* `served`: reads the certificates that pods serve.
* `needed_secrets`: the Secrets that the release needs.
* `finding`: the result of a check.
* `installed`, `parts`, `nodes`, `inventories`, `pending_pods`, `secrets`, `renewals`,
  `agentless`, `communication`: the checks.
* `checks`: all of them, in order.
"""
