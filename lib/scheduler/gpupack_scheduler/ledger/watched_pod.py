# SPDX-License-Identifier: Apache-2.0
"""Pods with only the fields that the ledger reads.

A list holds all pods at once before the ledger has seen any. Any user can write labels, and one
megabyte of them takes fifteen in memory.
"""

import msgspec

from gpupack_crds import names
from gpupack_kubeclient import objects
from gpupack_kubeclient.resources import PODS, Resource
from gpupack_scheduler.ledger.gated_pod import RawPodSpec

_LABELS = (
    names.JOB_LABEL,
    names.JOB_UID_LABEL,
    names.ATTEMPT_LABEL,
    names.INDEX_LABEL,
    names.POD_GROUP_LABEL,
)
_ANNOTATIONS = (
    names.DEVICES_ANNOTATION,
    names.PLACEMENT_ANNOTATION,
    names.PREEMPTION_ANNOTATION,
    names.RECLAIM_ANNOTATION,
    names.MIN_MEMBERS_ANNOTATION,
    names.CHECKPOINTED_AT_ANNOTATION,
    names.RESERVATION_ANNOTATION,
    names.ISOLATION_ANNOTATION,
    names.SHARE_WITH_ANNOTATION,
)


class WatchedPod(objects.Pod, frozen=True):
    """A pod as far as the ledger reads it."""

    spec: RawPodSpec = RawPodSpec()
    """The spec as it is decoded; afterwards it is a PodSpec or a GatedPodSpec."""

    def __post_init__(self) -> None:
        """Keep only labels, annotations and owners that identify the holder of a pod's devices."""
        spec: objects.PodSpec = self.spec
        if isinstance(spec, RawPodSpec):
            msgspec.structs.force_setattr(self, "spec", spec.reduced())
        metadata = self.metadata
        kept = msgspec.structs.replace(
            metadata,
            labels={name: metadata.labels[name] for name in _LABELS if name in metadata.labels},
            annotations={
                name: metadata.annotations[name]
                for name in _ANNOTATIONS
                if name in metadata.annotations
            },
            owner_references=tuple(
                owner for owner in metadata.owner_references if owner.controller
            ),
        )
        msgspec.structs.force_setattr(self, "metadata", kept)


WATCHED_PODS = Resource(PODS.prefix, PODS.plural, WatchedPod)
