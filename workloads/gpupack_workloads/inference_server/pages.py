# SPDX-License-Identifier: Apache-2.0
"""Allocates the pages of the cache.

Page 0 belongs to no sequence: what rows of padding compute is written there.
"""

SPARE = 0


class Pages:
    """Hands out pages 1 to `count`, each to one holder at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count, 0, -1))
        self._held: set[int] = set()

    @property
    def free(self) -> int:
        """Number of free pages."""
        return len(self._free)

    def take(self, number: int) -> tuple[int, ...] | None:
        """Return so many pages, or None (and take none) where fewer are free."""
        if number > len(self._free):
            return None
        taken = tuple(self._free.pop() for _ in range(number))
        self._held.update(taken)
        return taken

    def give_back(self, pages: tuple[int, ...]) -> None:
        """Free pages.

        Raises:
            ValueError: a page is free already, or named twice: two holders would get it.
        """
        if len(set(pages)) != len(pages) or not self._held.issuperset(pages):
            raise ValueError(f"pages {pages} are not all held")
        self._held.difference_update(pages)
        self._free.extend(reversed(pages))


def pages_for(positions: int, page_tokens: int) -> int:
    """Return how many pages hold so many positions."""
    return -(-positions // page_tokens)
