# SPDX-License-Identifier: Apache-2.0
"""Storage for kopf that keeps nothing in a GPUJob, and ignores what a GPUJob contains.

Before kopf calls any handler, of whatever kind, it reads the annotations in which it keeps a last
state, and it removes its finalizer if no handler needs it. Any writer of a GPUJob can write these:
an unreadable annotation would block the object's events, and the finalizer would cause a write to
which the operator has no right.
"""

from collections.abc import Iterable
from typing import Final

import kopf

NO_FINALIZER: Final = "no finalizer"
"""Finalizer that no object has: the API server accepts none with a space."""


class NoLastState(kopf.DiffBaseStorage):
    """Storage without last states, so that no object differs from one."""

    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None
    ) -> kopf.BodyEssence:
        """Return an empty state for comparison."""
        del body, extra_fields
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return no last state."""
        del body
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing."""


class NoProgress(kopf.ProgressStorage):
    """Storage without progress, so that no handler has anything to continue."""

    def fetch(self, *, key: kopf.HandlerId, body: kopf.Body) -> kopf.ProgressRecord | None:
        """Return no progress."""
        del key, body
        return None

    def store(
        self,
        *,
        key: kopf.HandlerId,
        record: kopf.ProgressRecord,
        body: kopf.Body,
        patch: kopf.Patch,
    ) -> None:
        """Write nothing."""

    def purge(self, *, key: kopf.HandlerId, body: kopf.Body, patch: kopf.Patch) -> None:
        """Write nothing."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Write nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the state unchanged: it contains no progress."""
        return essence
