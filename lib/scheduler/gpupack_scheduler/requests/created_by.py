# SPDX-License-Identifier: Apache-2.0
"""The user that created a GPUJob or a pod, by the annotation that admission writes."""

from typing import Final

from gpupack_crds import names
from gpupack_kubeclient import objects
from gpupack_queue import NO_USER, User

MAX_CHARACTERS: Final = 512
"""A service account's name has at most 338. A longer name counts as unknown."""


def user_of(metadata: objects.ObjectMeta) -> User:
    """Return the user that created an object; empty: unknown."""
    return bounded_name(metadata.annotations.get(names.CREATED_BY_ANNOTATION, ""))


def bounded_name(name: str) -> User:
    """Return the user of this name; a name that is too long is unknown."""
    return User(name) if len(name) <= MAX_CHARACTERS else NO_USER
