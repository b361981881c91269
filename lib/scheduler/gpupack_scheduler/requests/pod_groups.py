# SPDX-License-Identifier: Apache-2.0
"""The pod group that a pod belongs to.

    behind the gate   its labels and annotations name the group and the minimum
    admitted, bound   the annotation with its place names the group, and the gang that it joined

Only gpupack's scheduler writes the place, so no author of pods makes a running pod a member, or
takes one out.
"""

import re
from typing import Final, NamedTuple, TypeAlias

import msgspec

from gpupack_crds import names
from gpupack_crds.gpujob import MAX_WORKERS
from gpupack_crds.wire import Wire
from gpupack_kubeclient import objects

MAX_MEMBERS: Final = MAX_WORKERS
"""Maximum of members that start together, as of the workers of a GPUJob."""

OWN: Final = names.GROUP
"""The source of groups by gpupack's own label and annotation."""


class GroupKey(NamedTuple):
    """A pod group: what defines it, and its name there."""

    namespace: str
    source: str
    name: str


class GangKey(NamedTuple):
    """Members of a pod group that run together; a group that was preempted has a new gang later."""

    group: GroupKey
    gang: str


class GroupLabel(NamedTuple):
    """What a pod behind the gate says of its group.

    `minimum`: the number of members that start together; None: `problem` says why there is none.
    """

    key: GroupKey
    minimum: int | None
    problem: str = ""


class Membership(Wire, frozen=True):
    """The gang of a group that a pod was admitted with, in the annotation with its place.

    Attributes:
        source: what defines the group.
        name: name of the group.
        gang: the gang of the group; members that are admitted later join it.
        at: time of the decision, in whole seconds since the epoch.
        members: number of members that the same decision admitted, the oldest that waited.
        last_created: creation of the youngest of them, in whole seconds since the epoch.
        last_name: its name.
    """

    source: str
    name: str
    gang: str
    at: int
    members: int
    last_created: int = 0
    last_name: str = ""


class _Placed(msgspec.Struct):
    group: Membership | None = None


def labelled(pod: objects.Object) -> GroupLabel | None:
    """Return the group that a pod names; None: it names none."""
    meta = pod.metadata
    name = meta.labels.get(names.POD_GROUP_LABEL)
    if not name:
        return None
    key = GroupKey(meta.namespace, OWN, name)
    text = meta.annotations.get(names.MIN_MEMBERS_ANNOTATION, "")
    if not text:
        annotation = names.MIN_MEMBERS_ANNOTATION
        return GroupLabel(key, None, f"it has no annotation {annotation} with the number of them")
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_MEMBERS))
    if not is_number or not 1 <= int(text) <= MAX_MEMBERS:
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        problem = f"{names.MIN_MEMBERS_ANNOTATION} is {shown}, not a number from 1 to {MAX_MEMBERS}"
        return GroupLabel(key, None, problem)
    return GroupLabel(key, int(text))


_MAX_SHOWN: Final = 32

Age: TypeAlias = tuple[int, tuple[tuple[str, int], ...]]


def age(meta: objects.ObjectMeta) -> Age:
    """Return the sort key of a member: the oldest first, then by name, with numbers in order."""
    created = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
    return age_of(int(created), meta.name)


def age_of(created: int, name: str) -> Age:
    """Return the sort key of a member with this creation, in seconds since the epoch, and name."""
    parts = re.findall(r"([^0-9]*)([0-9]*)", name)
    return created, tuple((text, int(number or 0)) for text, number in parts)


def membership_of(meta: objects.ObjectMeta) -> Membership | None:
    """Return the gang that an admitted pod belongs to; None: it is no member."""
    written = meta.annotations.get(names.PLACEMENT_ANNOTATION, "")
    if '"group"' not in written:
        return None
    try:
        return msgspec.json.decode(written, type=_Placed).group
    except (msgspec.MsgspecError, RecursionError):
        return None
