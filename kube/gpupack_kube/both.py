# SPDX-License-Identifier: Apache-2.0
"""Two stores of one reflector."""

from typing import Generic, TypeVar

from gpupack_kube import objects
from gpupack_kube.reflector import Store

T = TypeVar("T", bound=objects.Object)


class Both(Generic[T]):
    """Fills two stores from one watch."""

    def __init__(self, first: Store[T], second: Store[T]) -> None:
        self._stores = (first, second)

    def replace(self, items: list[T], /) -> None:
        """Forget everything and hold exactly these."""
        for store in self._stores:
            store.replace(items)

    def upsert(self, item: T, /) -> None:
        """An object appeared or changed."""
        for store in self._stores:
            store.upsert(item)

    def remove(self, item: T, /) -> None:
        """An object is gone."""
        for store in self._stores:
            store.remove(item)
