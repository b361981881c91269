# SPDX-License-Identifier: Apache-2.0
"""Which shares may be on one GPU: as tenants write it, as it is stored, and as placement counts it.

Placement knows groups: only shares of one group are on a GPU together. A group consists of an
isolation and of the one namespace that may use it, or of all namespaces. The isolation is part of
it since limits protect nothing next to a share without limits.
"""

from collections.abc import Mapping
from typing import Final, get_args

from gpupack_crds import names
from gpupack_crds.devices import DeviceShare
from gpupack_crds.gpujob import Isolation, ShareWith
from gpupack_placement import Share
from gpupack_scheduler.errors import RequestInvalid

_ANYONE: Final = ""
_SEPARATOR: Final = "/"


def in_isolation_group(
    share: Share, *, isolation: Isolation, share_with: ShareWith, namespace: str
) -> Share:
    """Return the share with its group.

    Raises:
        RequestInvalid: the isolation is strict, which no share has.
    """
    if isolation == "strict":
        raise RequestInvalid(
            "nothing isolates shares of a GPU strictly from each other; ask for whole GPUs, or for "
            "isolation limited"
        )
    exclusive_to_namespace = namespace if share_with == "namespace" else _ANYONE
    return Share(
        share.milli,
        share.memory,
        group=_group(isolation, exclusive_to_namespace),
        limited=isolation == "limited",
    )


def of_annotations(share: Share, annotations: Mapping[str, str], *, namespace: str) -> Share:
    """Return the share with the group that a standalone pod's annotations name.

    Raises:
        RequestInvalid: an annotation has an unknown value.
    """
    isolation = annotations.get(names.ISOLATION_ANNOTATION, "cooperative")
    share_with = annotations.get(names.SHARE_WITH_ANNOTATION, "anyone")
    for name, said, kinds in (
        (names.ISOLATION_ANNOTATION, isolation, get_args(Isolation)),
        (names.SHARE_WITH_ANNOTATION, share_with, get_args(ShareWith)),
    ):
        if said not in kinds:
            raise RequestInvalid(
                f"annotation {name} is {said[:80]!r}; set it to {' or '.join(kinds)}"
            )
    return in_isolation_group(
        share,
        isolation=isolation,  # type: ignore[arg-type]
        share_with=share_with,  # type: ignore[arg-type]
        namespace=namespace,
    )


def group_of(held: DeviceShare) -> str:
    """Return placement's group of a held share."""
    return _ANYONE if held.whole else _group(held.isolation, held.exclusive_to_namespace)


def held_as(group: str) -> tuple[str, str]:
    """Return the isolation of a group, and its one namespace; empty: all namespaces."""
    isolation, _, exclusive_to_namespace = group.partition(_SEPARATOR)
    return ("limited" if isolation == "limited" else "cooperative"), exclusive_to_namespace


def _group(isolation: str, exclusive_to_namespace: str) -> str:
    if isolation == "cooperative" and not exclusive_to_namespace:
        return _ANYONE
    return f"{isolation}{_SEPARATOR}{exclusive_to_namespace}"
