# SPDX-License-Identifier: Apache-2.0
"""Pulling of gpupack's own images into the pods of tenants.

A pull secret is read from the namespace of the pod. gpupack copies none there: the operator has no
right to read or write tenants' Secrets, and any user of the namespace could read the credentials.
An administrator creates a Secret of the same name in each namespace that needs it. Where there is
none, the kubelet pulls without it, which suffices if nodes have their own credentials.

A pod that names a pull secret gets none from its service account. So only pods with an image of
gpupack name gpupack's pull secrets; pods that use only images of the user are not changed.
"""

import dataclasses
from typing import Final

from gpupack_kubeclient.objects import Json
from gpupack_operator.manifests.merge import merge


@dataclasses.dataclass(frozen=True, slots=True)
class PullSettings:
    """Pull settings, as in the chart's values.

    Attributes:
        policy: when nodes pull an image.
        secrets: names of Secrets with credentials of the registry.
    """

    policy: str = "IfNotPresent"
    secrets: tuple[str, ...] = ()

    def with_pull_secrets(self, pod_spec: Json) -> Json:
        """Return a PodSpec that names gpupack's pull secrets before those that it names already."""
        if not self.secrets:
            return pod_spec
        ours = {"imagePullSecrets": [{"name": name} for name in self.secrets]}
        theirs = {"imagePullSecrets": pod_spec.get("imagePullSecrets") or []}
        return pod_spec | merge(ours, theirs)


IF_NOT_PRESENT: Final = PullSettings()
"""Default settings: without pull secrets."""
