# SPDX-License-Identifier: Apache-2.0
"""Parallel actions on several nodes."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def for_all(indexes: Sequence[int], action: Callable[[int], None]) -> None:
    """Call the action for every node's index in parallel; raise a failure when all are done."""
    if not indexes:
        return
    with ThreadPoolExecutor(max_workers=len(indexes)) as pool:
        for outcome in [pool.submit(action, index) for index in indexes]:
            outcome.result()
