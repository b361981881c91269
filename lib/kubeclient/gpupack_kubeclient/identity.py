# SPDX-License-Identifier: Apache-2.0
"""The identity of an API server's caller, for another server that asks the API server."""

import dataclasses

from gpupack_kubeclient.kubeconfig.presented import NOTHING, Presented


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The caller's credentials, its namespace, and the user that it impersonates.

    Attributes:
        presented: a token, a client certificate, both or neither.
        namespace: the default namespace of the caller.
        acts_as: the user that the caller impersonates; empty: none.
        in_cluster: the caller is the service account of this pod.
    """

    presented: Presented = NOTHING
    namespace: str = "default"
    acts_as: str = ""
    in_cluster: bool = False
