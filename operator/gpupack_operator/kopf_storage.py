# SPDX-License-Identifier: Apache-2.0
"""What kopf would keep of its own in a GPUJob: nothing, and nothing is taken for it.

kopf reads the annotations in which it keeps a last state before it calls any handler, of whatever
kind, and takes its finalizer off where no handler wants it. Whoever writes a GPUJob writes those,
too: an annotation that cannot be read would keep the object from being heard of, and the finalizer
would be a write to which the operator has no right.
"""

from collections.abc import Iterable
from typing import Final

import kopf

NO_FINALIZER: Final = "no finalizer"
"""That of no object: the API server takes none with a space."""


class NoLastState(kopf.DiffBaseStorage):
    """Of no object a last state is known, and none differs from it."""

    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None
    ) -> kopf.BodyEssence:
        """What would be compared."""
        del body, extra_fields
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """What it was compared with."""
        del body
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing."""


class NoProgress(kopf.ProgressStorage):
    """No handler has begun anything that another pass would go on with."""

    def fetch(self, *, key: kopf.HandlerId, body: kopf.Body) -> kopf.ProgressRecord | None:
        """How far a handler is."""
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
        """Nothing stands in it."""
        return essence
