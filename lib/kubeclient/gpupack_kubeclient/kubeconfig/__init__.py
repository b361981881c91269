# SPDX-License-Identifier: Apache-2.0
"""The meaning of a kubeconfig, which is the same as for kubectl.

    KUBECONFIG, --kubeconfig ─► files: parsed and merged ─► target: context, cluster and user
                                                              │        of one connection
    a pod's service account ────────────────────────────────────┘
                                                              ▼
    credentials: token, certificate, renewed ─► headers, TLS context, proxy ─► requests

Each field and each variable that kubectl honours is honoured or refused by name
(docs/kubeconfig.md). The command line, the Python API and the components all connect this way.

* `fields`: the types of the document.
* `files`: which files are read, and how they are merged.
* `target`: one connection, with a list of everything that is wrong with it.
* `exec_command`, `plugin_policy`: commands that issue credentials.
* `credentials`: the credentials that a request presents now.
* `impersonation`, `proxies`, `tls`: how a request sends them.
"""
