# SPDX-License-Identifier: Apache-2.0
"""Messages for a listener after a tick: events as text, in pieces.

    event: nodes
    data: {"changed":[{"node_name":"gpu-1",…}],"removed":["gpu-7"]}

A frame has the objects, and writes a piece of them on demand. While its tick is the last one,
pieces are cached, since all listeners with the same permissions get the same ones; pieces of the
cluster are shared by all, whatever jobs they may see. Later each slow listener gets newly written
pieces, one at a time, so that none takes the memory of a whole frame.

Compressed pieces are deflated separately and end at a byte: pieces of any frames form one gzip
stream, whose checksum is the listener's own.
"""

import dataclasses
import datetime as dt
import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from gpupack_apiserver.events.feed import Feed, Tick
from gpupack_apiserver.history import History
from gpupack_apiserver.job_views import job_view
from gpupack_apiserver.read_model import JobKey, ReadModel
from gpupack_apiserver.shown_job import ShownJob
from gpupack_restapi.events import ClusterFigures
from gpupack_restapi.nodes import Utilization

PIECE_ITEMS: Final = 100
"""Objects in a piece; nodes with eight GPUs take 150 KB."""

NO_TICK: Final = -1
"""Placeholder for a tick: the listener has seen nothing yet, and gets everything."""

RAW_DEFLATE: Final = -15


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """The events that a listener may see and requested.

    Attributes:
        cluster: nodes, and figures of the whole cluster.
        all_namespaces: jobs of all namespaces.
        namespaces: otherwise the jobs of these.
    """

    cluster: bool
    all_namespaces: bool = False
    namespaces: frozenset[str] = frozenset()

    def shows(self, namespace: str) -> bool:
        """Return whether jobs of this namespace are included."""
        return self.all_namespaces or namespace in self.namespaces


class Piece:
    """Text that is written on demand."""

    def __init__(self, write: Callable[[], bytes]) -> None:
        self._write = write
        self._kept: dict[str, bytes] | None = {}

    def text(self) -> bytes:
        """Return the text."""
        return self._known("text", self._write)

    def deflated(self) -> bytes:
        """Return the text, compressed."""
        return self._known("deflated", lambda: deflated(self.text()))

    def stop_caching(self) -> None:
        """Stop caching, after the tick is no longer the last one."""
        self._kept = None

    def _known(self, form: str, write: Callable[[], bytes]) -> bytes:
        if self._kept is None:
            return write()
        if form not in self._kept:
            self._kept[form] = write()
        return self._kept[form]


class Frame:
    """Pieces of text; empty where there is nothing to send."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces

    def __len__(self) -> int:
        return len(self._pieces)

    def text(self, number: int) -> bytes:
        """Return a piece."""
        return self._pieces[number].text()

    def deflated(self, number: int) -> bytes:
        """Return a piece, compressed."""
        return self._pieces[number].deflated()

    def stop_caching(self) -> None:
        """Stop caching, after the tick is no longer the last one."""
        for piece in self._pieces:
            piece.stop_caching()


class Frames:
    """The frames of a feed's ticks."""

    def __init__(self, feed: Feed, model: ReadModel, history: History) -> None:
        self._feed, self._model, self._history = feed, model, history
        self._number = NO_TICK
        self._known: dict[tuple[Scope, int, frozenset[str]], Frame] = {}
        self._cluster_pieces: dict[int, Sequence[Piece]] = {}
        """Pieces of the cluster by the last seen tick."""

    def frame_for(
        self, scope: Scope, seen: int, *, added: frozenset[str] = frozenset()
    ) -> Frame | None:
        """Return the next frame of a listener; None: it has not read for too long.

        Args:
            scope: what it may see.
            seen: its last tick, or NO_TICK.
            added: namespaces that are new in its scope.
        """
        if self._number != self._feed.number:
            for old in self._known.values():
                old.stop_caching()
            self._number, self._known, self._cluster_pieces = self._feed.number, {}, {}
        key = (scope, seen, added)
        if key not in self._known:
            frame = self._make_frame(scope, seen, added)
            if frame is None:
                return None
            self._known[key] = frame
        return self._known[key]

    def _make_frame(self, scope: Scope, seen: int, added: frozenset[str]) -> Frame | None:
        tick = None if seen == NO_TICK else self._feed.changes_since(seen)
        if tick is None and seen != NO_TICK:
            return None
        pieces = [*self._jobs_since(scope, tick, added)] if tick else [*self._all_jobs(scope)]
        if not scope.cluster:
            return Frame(pieces)
        if seen not in self._cluster_pieces:
            self._cluster_pieces[seen] = [*(self._since(tick) if tick else self._all())]
        return Frame([*self._cluster_pieces[seen], *pieces])

    def _all(self) -> Iterator[Piece]:
        yield self._cluster()
        yield from _pieces("nodes", [*self._feed.nodes.values()], [])

    def _all_jobs(self, scope: Scope) -> Iterator[Piece]:
        known = self._model.jobs.by_key
        shown = [job for key, job in known.items() if scope.shows(key[0])]
        yield from _pieces("jobs", shown, [], _views)

    def _since(self, tick: Tick) -> Iterator[Piece]:
        if tick.cluster:
            yield self._cluster()
        if tick.nodes:
            now = self._feed.nodes
            changed = [now[name] for name in sorted(tick.nodes) if name in now]
            yield from _pieces("nodes", changed, sorted(tick.nodes - now.keys()))

    def _jobs_since(self, scope: Scope, tick: Tick, added: frozenset[str]) -> Iterator[Piece]:
        jobs = {key for key in tick.jobs if scope.shows(key[0])}
        if added:
            jobs |= {key for key in self._model.jobs.by_key if key[0] in added}
        if jobs:
            yield from self._jobs(jobs)

    def _jobs(self, keys: set[JobKey]) -> Iterator[Piece]:
        known = self._model.jobs.by_key
        changed = [known[key] for key in sorted(keys) if key in known]
        gone = [{"namespace": key[0], "name": key[1]} for key in sorted(keys - known.keys())]
        return _pieces("jobs", changed, gone, _views)

    def _cluster(self) -> Piece:
        totals, samples = self._feed.totals, self._history.samples
        now = ClusterFigures(
            utilization=Utilization(totals.gpu_utilization, totals.gpu_memory_usage),
            total_nodes=totals.nodes,
            total_gpus=totals.gpus,
            available_gpus=totals.available_gpus,
            fragmentation=totals.fragmentation,
            timestamp=dt.datetime.now(dt.UTC),
            sample=samples[-1] if samples else None,
        )
        return Piece(lambda: event("cluster", msgspec.json.encode(now)))


def event(name: str, data: bytes) -> bytes:
    """Return one event; JSON has no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


def deflated(text: bytes) -> bytes:
    """Return text as deflate blocks that refer to nothing before them and are not the last."""
    compress = zlib.compressobj(1, zlib.DEFLATED, RAW_DEFLATE)
    return compress.compress(text) + compress.flush(zlib.Z_FULL_FLUSH)


def _views(jobs: Iterable[ShownJob]) -> list[Any]:
    return [job_view(each) for each in jobs]


def _pieces(
    name: str,
    changed: Sequence[Any],
    removed: Sequence[Any],
    shown: Callable[[Sequence[Any]], Sequence[Any]] = lambda items: items,
) -> Iterator[Piece]:
    """Yield an event of many objects as pieces that form one line of data."""
    starts = range(0, max(len(changed), 1), PIECE_ITEMS)
    for start in starts:
        batch = changed[start : start + PIECE_ITEMS]
        before = b"," if start else b'event: %s\ndata: {"changed":[' % name.encode()
        after = b""
        if start == starts[-1]:
            after = b'],"removed":%s}\n\n' % msgspec.json.encode(removed)
        yield Piece(functools.partial(_encode, before, batch, after, shown))


def _encode(
    before: bytes, items: Sequence[Any], after: bytes, shown: Callable[[Sequence[Any]], Any]
) -> bytes:
    return before + msgspec.json.encode(shown(items))[1:-1] + after
