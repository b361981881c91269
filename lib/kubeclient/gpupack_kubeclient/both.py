# SPDX-License-Identifier: Apache-2.0
"""A store that forwards to two stores."""

from typing import Generic, TypeVar

from gpupack_kubeclient import objects
from gpupack_kubeclient.reflector import Store

T = TypeVar("T", bound=objects.Object)


class Both(Generic[T]):
    """Two stores that one watch fills."""

    def __init__(self, first: Store[T], second: Store[T]) -> None:
        self._stores = (first, second)

    def replace(self, items: list[T], /) -> None:
        """Replace the content of both stores with these items."""
        for store in self._stores:
            store.replace(items)

    def upsert(self, item: T, /) -> None:
        """Add or update an object in both stores."""
        for store in self._stores:
            store.upsert(item)

    def remove(self, item: T, /) -> None:
        """Remove an object from both stores."""
        for store in self._stores:
            store.remove(item)
