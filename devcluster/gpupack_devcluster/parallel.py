# SPDX-License-Identifier: Apache-2.0
"""Do one thing with several nodes at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def for_all(indexes: Sequence[int], action: Callable[[int], None]) -> None:
    """Call the action for every node, given by its index; a failure is raised when all are done."""
    if not indexes:
        return
    with ThreadPoolExecutor(max_workers=len(indexes)) as pool:
        for outcome in [pool.submit(action, index) for index in indexes]:
            outcome.result()
