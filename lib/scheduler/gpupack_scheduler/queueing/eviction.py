# SPDX-License-Identifier: Apache-2.0
"""The eviction of a standalone pod."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that must end; `reason` and `why` (after «evicted») are for its owner."""

    uid: str
    namespace: str
    name: str
    reason: str
    why: str
