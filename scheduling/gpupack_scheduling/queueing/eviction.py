# SPDX-License-Identifier: Apache-2.0
"""A pod of its own that is to end."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that is to end; `reason` and `why` (after «evicted») are for its owner."""

    uid: str
    namespace: str
    name: str
    reason: str
    why: str
