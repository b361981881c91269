# SPDX-License-Identifier: Apache-2.0
"""What was observed of one kind, by a key of ours: a reflector's store."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from gpupack_kube.objects import Object
from gpupack_operator.cache import version

T = TypeVar("T", bound=Object)
V = TypeVar("V")


class Listener(Protocol):
    """Who is told of every change."""

    def __call__(self, kept: Any, /, *, gone: bool) -> None:
        """An object appeared, changed, or is gone; `kept` is what is kept of it."""


class Index(Mapping[Any, Collection[V]], Generic[T, V]):
    """Objects by key; several may share one, such as the pods of a GPUJob.

    Args:
        key: under which key an object is found.
        read: what is kept of it. It must not fail: the reflector leaves out what cannot be read.
        listener: told of every change.
    """

    def __init__(self, key: Callable[[T], Any], read: Callable[[T], V], listener: Listener) -> None:
        self._key = key
        self._read = read
        self._listener = listener
        self._keys: dict[str, Any] = {}
        self._versions: dict[str, int] = {}
        self._found: dict[Any, dict[str, V]] = {}

    def upsert(self, item: T) -> None:
        """An object appeared or changed; what is older than what is known is no news.

        GPUJobs come from two sources, each with its own list to begin with.
        """
        if version(item) > self._versions.get(item.metadata.uid, -1):
            self._put(item)

    def remove(self, item: T) -> None:
        """An object is gone."""
        self.drop(item.metadata.uid)

    def drop(self, uid: str) -> None:
        """The object of this UID is gone, if there was one."""
        kept = self._taken(uid)
        if kept is not None:
            self._listener(kept, gone=True)

    def replace(self, items: list[T]) -> None:
        """These are all."""
        listed = {item.metadata.uid for item in items}
        for uid in self._keys.keys() - listed:
            self.drop(uid)
        for item in items:
            # Most have not changed: to tell of each would wake all who wait as often.
            if version(item) != self._versions.get(item.metadata.uid):
                self._put(item)

    def __getitem__(self, key: Any) -> Collection[V]:
        return tuple(self._found[key].values())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def _put(self, item: T) -> None:
        uid, key = item.metadata.uid, self._key(item)
        self._taken(uid)
        self._keys[uid], self._versions[uid] = key, version(item)
        kept = self._found.setdefault(key, {})[uid] = self._read(item)
        self._listener(kept, gone=False)

    def _taken(self, uid: str) -> V | None:
        if uid not in self._keys:
            return None
        key = self._keys.pop(uid)
        del self._versions[uid]
        kept = self._found[key].pop(uid)
        if not self._found[key]:
            del self._found[key]
        return kept
