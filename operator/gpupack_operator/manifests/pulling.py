# SPDX-License-Identifier: Apache-2.0
"""How nodes pull gpupack's own images into the pods of tenants.

A pull secret is read from the namespace of the pod. gpupack copies none there: the operator has no
right to read or write tenants' Secrets, and any user of the namespace could read the credentials.
An administrator makes a Secret of the same name in each namespace that is to have it; where there
is none the kubelet pulls without, which is enough where nodes have credentials of their own.

A pod that names a pull secret gets none from its service account. So only pods with an image of
ours name ours, and pods whose images are all the user's are left as they are.
"""

import dataclasses
from typing import Final

from gpupack_kube.objects import Json
from gpupack_operator.manifests.merge import merged


@dataclasses.dataclass(frozen=True, slots=True)
class Pulling:
    """As the chart's values have it.

    Attributes:
        policy: when nodes pull an image.
        secrets: names of Secrets with credentials of the registry.
    """

    policy: str = "IfNotPresent"
    secrets: tuple[str, ...] = ()

    def credited(self, pod_spec: Json) -> Json:
        """Return a PodSpec that names our pull secrets before those that it names already."""
        if not self.secrets:
            return pod_spec
        ours = {"imagePullSecrets": [{"name": name} for name in self.secrets]}
        theirs = {"imagePullSecrets": pod_spec.get("imagePullSecrets") or []}
        return pod_spec | merged(ours, theirs)


IF_NOT_PRESENT: Final = Pulling()
"""Without pull secrets."""
