# SPDX-License-Identifier: Apache-2.0
"""The messages of the plan API: the operator asks, the extender's ledger answers.

POST /v1alpha1/namespaces/NAMESPACE/plan
     PlanRequest ─► 200 PlanResponse: every worker has a place, held for now
                    409 PlanRefusal: not now, or never; nothing is held
                    400, 401, 403, 413, 429, 503 Problem

The caller's right is asked for by the path's namespace, before a byte of the body is read.
"""

from typing import Annotated

import msgspec

from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.placement import NodePlacement
from gpupack_crds.wire import Wire

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class PlanRequest(Wire, frozen=True, forbid_unknown_fields=True):
    """Places for all workers of one attempt, or none.

    Asking again for the same uid and attempt gives the same places while they are held.

    Attributes:
        namespace: the path's.
        spec: the job's spec, without its template; the scheduling part decides.
        pod_spec: the PodSpec that the workers will have: its CPU and memory requests, node
            selector, required node affinity and tolerations decide too, so that a plan does not
            die in kube-scheduler's own filters. As JSON: of a PodSpec only these parts are decoded.
        resource_version: the GPUJob's, under which the plan will be written: no other version takes
            the write, so that it is known when a plan cannot be written any more.
    """

    namespace: Name
    name: Name
    uid: Name
    attempt: Annotated[int, msgspec.Meta(ge=1)]
    spec: GpuJobSpec
    pod_spec: msgspec.Raw
    resource_version: str = ""


class PlanResponse(Wire, frozen=True):
    """A place for every worker."""

    placement: tuple[NodePlacement, ...]
    expires_seconds: float


class PlanRefusal(Wire, frozen=True):
    """Why there is no plan.

    Attributes:
        reason: the typed reason that most nodes gave, such as `TooFewFreeGpus`.
        message: counts by cause, for people; the same for the same cluster state.
        counts: nodes by typed reason.
        never: it would not fit if the cluster were empty and all of it healthy.
        fits_vacated: it would fit now, on nodes and GPUs as they are, if nobody held anything: it
            waits for others to end, and for nothing else.
    """

    reason: str
    message: str
    counts: dict[str, int] = {}
    never: bool = False
    fits_vacated: bool = False


class Problem(Wire, frozen=True):
    """Why a call was not answered."""

    reason: str
    message: str
