# SPDX-License-Identifier: Apache-2.0
"""Who a caller of the API server is, as far as another server that asks it wants to know."""

import dataclasses

from gpupack_kube.kubeconfig.presented import NOTHING, Presented


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the caller presents, where it works, and as which other user it is judged.

    Attributes:
        presented: a token, a client certificate, both or neither.
        namespace: where the caller works if none is named.
        acts_as: the user that it asks to be judged as; empty: as itself.
        in_cluster: it is the service account of this pod.
    """

    presented: Presented = NOTHING
    namespace: str = "default"
    acts_as: str = ""
    in_cluster: bool = False
