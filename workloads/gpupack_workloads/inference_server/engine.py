# SPDX-License-Identifier: Apache-2.0
"""The thread that steps: plans, computes, publishes events.

Callers of other threads submit and cancel under one lock, which is never held while a step is
computed: so a caller never waits for a GPU. A request that is cancelled while its step is computed
leaves after it.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gpupack_workloads.inference_server.batch import Batch, Part, Request, Sequence, Step
from gpupack_workloads.inference_server.graphs import Graphs, pinned
from gpupack_workloads.inference_server.network import Network, Rows, packed, pages_needed
from gpupack_workloads.inference_server.sampling import NO_NUMBERS

logger = logging.getLogger(__name__)

FAILED = "failed"
# How much the latest step counts in the mean speed.
SMOOTHING = 0.05


@dataclass(frozen=True)
class Event:
    """A new token of a sequence, or its failure.

    Attributes:
        sequence: the sequence.
        token: None where the engine failed.
        finished: `length`, `stop` or `failed` with the last event of a sequence.
    """

    sequence: Sequence
    token: int | None
    finished: str | None


@dataclass(frozen=True)
class Load:
    """Current load of an engine."""

    running: int
    waiting: int
    pages: int
    pages_free: int
    steps: int


class Engine:
    """Steps a network in a separate thread, from `start` to `close`.

    Args:
        network: computes.
        batch: decides what to compute; only the engine may touch it.
        graphs: of the network's steps of one token, if there are.
        publish: gets each step's events, in the engine's thread.
        on_failed: is called once if a step raises; no request is taken afterwards.
    """

    def __init__(
        self,
        network: Network,
        batch: Batch,
        *,
        graphs: Graphs | None,
        publish: Callable[[list[Event]], None],
        on_failed: Callable[[], None],
    ) -> None:
        self._network, self._batch, self._graphs = network, batch, graphs
        self._publish, self._on_failed = publish, on_failed
        self._changed = threading.Condition()
        self._leaving: set[Sequence] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._tokens_per_second = 0.0
        self._steps = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def submit(self, request: Request, listener: Any) -> Sequence:
        """Let a request wait for its turn.

        Raises:
            QueueFull: too many wait.
            ValueError: it can never fit.
            RuntimeError: the engine has failed, or is closed.
        """
        with self._changed:
            if self._closing or self.failure:
                raise RuntimeError("the engine takes no requests any more")
            sequence = self._batch.submit(request, listener)
            self._changed.notify()
            return sequence

    def cancel(self, sequence: Sequence) -> None:
        """Forget a request, at once or after its step; one that has ended is no matter."""
        with self._changed:
            if sequence in self._batch.waiting:
                self._batch.cancel(sequence)
            elif sequence in self._batch.running:
                self._leaving.add(sequence)
                self._changed.notify()

    @property
    def load(self) -> Load:
        """What there is to do."""
        with self._changed:
            batch = self._batch
            return Load(
                running=len(batch.running),
                waiting=len(batch.waiting),
                pages=batch.pages.count,
                pages_free=batch.pages.free,
                steps=self._steps,
            )

    @property
    def seconds_ahead(self) -> float:
        """Estimated seconds until the next waiting request is admitted."""
        with self._changed:
            if not self._tokens_per_second:
                return 0.0
            all_done = self._batch.tokens_ahead / self._tokens_per_second
            return all_done / max(1, len(self._batch.waiting))

    def close(self) -> None:
        """End after the current step; the remaining requests fail."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (step := self._next()) is not None:
                began = time.perf_counter()
                tokens = self._compute(step)
                self._take_in(step, tokens, time.perf_counter() - began)
        except BaseException as error:
            logger.exception("the engine has failed")
            self.failure = error
            self._on_failed()
        with self._changed:
            left = self._batch.clear()
        self._publish([Event(sequence, None, FAILED) for sequence in left])

    def _next(self) -> Step | None:
        """Wait for something to compute; None at the end."""
        with self._changed:
            while True:
                for sequence in self._leaving:
                    self._batch.cancel(sequence)
                self._leaving.clear()
                if self._closing:
                    return None
                if step := self._batch.plan():
                    return step
                self._changed.wait()

    def _take_in(self, step: Step, tokens: list[int], seconds: float) -> None:
        with self._changed:
            new = self._batch.advance(step, tokens)
            speed = len(new) / seconds
            before = self._tokens_per_second or speed
            self._tokens_per_second = before + SMOOTHING * (speed - before)
            self._steps += 1
        if new:
            self._publish([Event(each, token, each.finished) for each, token in new])

    def _compute(self, step: Step) -> list[int]:
        """Return a token for each part, in their order."""
        # Both are launched before either is waited for.
        found = [self._launch(parts) for parts in (step.prefill, step.decode) if parts]
        tokens = [token for output, count in found for token in output.tolist()[:count]]
        if NO_NUMBERS in tokens:
            # Their keys and values are in the cache: the next owner of those pages would fail, too.
            raise RuntimeError("the network has computed logits that are no numbers")
        return tokens

    def _launch(self, parts: list[Part]) -> tuple[torch.Tensor, int]:
        """Compute parts, all of one token or all of prompts; return tokens and how many count."""
        network = self._network
        pages, rows = pages_needed(parts, network.page_tokens), len(parts)
        if self._graphs and all(part.count == 1 for part in parts):
            rows, pages = self._graphs.size_for(rows, pages)
            numbers, temperatures = packed(parts, pages=pages, rows=rows)
            found = self._graphs.tokens(pinned(numbers), pinned(temperatures), pages)
            # The next step may overwrite it before it is read: a prompt's last token is one, too.
            return found.clone(), len(parts)
        numbers, temperatures = packed(parts, pages=pages)
        device = network.device
        given = Rows(
            torch.from_numpy(numbers).to(device), torch.from_numpy(temperatures).to(device), pages
        )
        return network.tokens(given), len(parts)
