# SPDX-License-Identifier: Apache-2.0
"""Observed objects of one kind, by a key of the operator: a reflector's store."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from gpupack_operator.cache import Versioned, version

T = TypeVar("T", bound=Versioned)


class Listener(Protocol):
    """Callback for every change."""

    def __call__(self, item: Any, /, *, gone: bool) -> None:
        """Handle an object that appeared, changed or is deleted."""


class Index(Mapping[Any, Collection[T]], Generic[T]):
    """Objects by key; several may share one, such as the pods of a GPUJob.

    Args:
        key: returns the key of an object.
        listener: is called for every change.
    """

    def __init__(self, key: Callable[[T], Any], listener: Listener) -> None:
        self._key = key
        self._listener = listener
        self._keys: dict[str, Any] = {}
        self._versions: dict[str, int] = {}
        self._found: dict[Any, dict[str, T]] = {}

    def upsert(self, item: T) -> None:
        """Store a new or changed object; ignore a version older than the known one.

        GPUJobs come from two sources, and each begins with its own list.
        """
        if version(item) > self._versions.get(item.metadata.uid, -1):
            self._put(item)

    def remove(self, item: T) -> None:
        """Remove a deleted object."""
        self.drop(item.metadata.uid)

    def drop(self, uid: str) -> None:
        """Remove the object of this UID, if there is one."""
        item = self._taken(uid)
        if item is not None:
            self._listener(item, gone=True)

    def replace(self, items: list[T]) -> None:
        """Replace all objects by these."""
        listed = {item.metadata.uid for item in items}
        for uid in self._keys.keys() - listed:
            self.drop(uid)
        for item in items:
            # Most have not changed: to report each would wake all listeners that often.
            if version(item) != self._versions.get(item.metadata.uid):
                self._put(item)

    def __getitem__(self, key: Any) -> Collection[T]:
        return tuple(self._found[key].values())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def _put(self, item: T) -> None:
        uid, key = item.metadata.uid, self._key(item)
        self._taken(uid)
        self._keys[uid], self._versions[uid] = key, version(item)
        self._found.setdefault(key, {})[uid] = item
        self._listener(item, gone=False)

    def _taken(self, uid: str) -> T | None:
        if uid not in self._keys:
            return None
        key = self._keys.pop(uid)
        del self._versions[uid]
        item = self._found[key].pop(uid)
        if not self._found[key]:
            del self._found[key]
        return item
