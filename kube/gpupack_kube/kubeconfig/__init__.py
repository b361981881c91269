# SPDX-License-Identifier: Apache-2.0
"""What a kubeconfig means: the same as for kubectl.

    KUBECONFIG, --kubeconfig ─► files: parsed and merged ─► target: context, cluster and user
                                                                │        of one connection
    a pod's service account ────────────────────────────────────┘
                                                                ▼
    credentials: token, certificate, renewed ─► headers, TLS context, proxy ─► requests

Each field and each variable that kubectl honours is honoured or refused by name
(docs/kubeconfig.md). The command line, the Python API and the components all connect by it.

* `fields`: the document's types.
* `files`: which files count, and how they are merged.
* `target`: one connection, with everything that is wrong with it.
* `exec_command`, `plugin_policy`: commands that issue credentials.
* `credentials`: what a request presents now.
* `impersonation`, `proxies`, `tls`: how a request shows it.
"""
