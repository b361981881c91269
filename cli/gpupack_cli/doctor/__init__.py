# SPDX-License-Identifier: Apache-2.0
"""Checks of an installation: what is there is read once, and pure functions judge it.

* `views`: the objects, as far as they are looked at.
* `observed`: everything that was read, or why it could not be.
* `reading`: reads it.
* `calling`: calls the REST API as the caller would.
* `served`: looks at the certificates that pods serve.
* `finding`: what a check says.
* `installed`, `parts`, `nodes`, `inventories`, `pending_pods`, `renewals`: the
  checks.
* `checks`: all of them, in order.
"""
