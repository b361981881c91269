# SPDX-License-Identifier: Apache-2.0
"""Chooses the sequences of the next step. Pure: it neither waits nor computes.

Requests join and leave between any two steps. They are admitted in the order in which they came:
a large one is not overtaken by small ones for ever. A step computes one token of each sequence
whose prompt is done, and parts of the prompts of others, few enough tokens that those who
are answering do not wait long.
"""

from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Any

from gpupack_workloads.inference_server.pages import Pages, pages_for

LENGTH, STOP = "length", "stop"


class QueueFull(Exception):
    """Error: the maximum number of requests is waiting."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Parameters of a generation.

    Attributes:
        prompt: tokens, one at least.
        max_tokens: maximum number of tokens of the answer, one at least.
        temperature: 0 takes the likeliest token.
        seed: seed of the choice among tokens.
        stop: tokens that end the answer, which has them in it.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    stop: frozenset[int] = frozenset()

    @property
    def positions(self) -> int:
        """How many are cached at most: the last token of an answer is not computed on."""
        return len(self.prompt) + self.max_tokens - 1


@dataclass(eq=False)
class Sequence:
    """A request and its state.

    Attributes:
        request: the request.
        listener: receiver of its tokens; opaque to this module.
        pages: pages of its keys and values, from its admission on.
        cached: number of positions whose keys and values are cached.
        output: tokens so far.
        finished: why it has ended.
    """

    request: Request
    listener: Any = None
    pages: tuple[int, ...] = ()
    cached: int = 0
    output: list[int] = field(default_factory=list)
    finished: str | None = None

    @property
    def known(self) -> int:
        """How many tokens there are to compute on."""
        return len(self.request.prompt) + len(self.output)

    @property
    def answering(self) -> bool:
        """Whether its prompt is done."""
        return self.cached >= len(self.request.prompt)

    def tokens(self, count: int) -> Items[int]:
        """Return the next tokens that are not cached."""
        if self.answering:
            return self.output[-1:]
        return self.request.prompt[self.cached : self.cached + count]


@dataclass(frozen=True)
class Part:
    """The next `count` tokens of a sequence that a step computes."""

    sequence: Sequence
    count: int

    @property
    def completes(self) -> bool:
        """Whether a token of the answer comes of it."""
        return self.sequence.cached + self.count == self.sequence.known


@dataclass(frozen=True)
class Step:
    """A step: parts of prompts, and one token each of the sequences that generate."""

    prefill: list[Part]
    decode: list[Part]

    @property
    def parts(self) -> list[Part]:
        """All."""
        return self.prefill + self.decode

    def __bool__(self) -> bool:
        return bool(self.prefill or self.decode)


class Batch:
    """Waiting requests and running sequences.

    Args:
        pages: allocator of the cache's pages.
        page_tokens: positions of a page.
        max_batch: sequences that compute at a time.
        max_waiting: requests that wait at most, besides those for which the batch has places.
        prefill_tokens: maximum number of prompt tokens in a step, with padding to the longest part.
    """

    def __init__(
        self,
        pages: Pages,
        *,
        page_tokens: int,
        max_batch: int,
        max_waiting: int,
        prefill_tokens: int,
    ) -> None:
        self.pages, self.page_tokens = pages, page_tokens
        self.max_batch, self.max_waiting = max_batch, max_waiting
        self.prefill_tokens = prefill_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.waiting and not self.running

    @property
    def tokens_ahead(self) -> int:
        """How many tokens those before a new request may still generate."""
        sequences = (*self.waiting, *self.running)
        return sum(each.request.max_tokens - len(each.output) for each in sequences)

    def submit(self, request: Request, listener: Any = None) -> Sequence:
        """Let a request wait.

        Raises:
            QueueFull: too many do.
            ValueError: it needs more pages than there are, and would wait for ever.
        """
        if pages_for(request.positions, self.page_tokens) > self.pages.count:
            raise ValueError(f"{request.positions} positions do not fit into the cache")
        # Requests that the next step takes in do not wait.
        places = self.max_batch - len(self.running)
        if len(self.waiting) >= self.max_waiting + places:
            raise QueueFull
        sequence = Sequence(request, listener)
        self.waiting.append(sequence)
        return sequence

    def cancel(self, sequence: Sequence) -> None:
        """Forget a request; its pages are free. One that has ended stays as it is.

        Not between `plan` and `advance` for a sequence of that step: its pages are written to.
        """
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        elif sequence in self.running:
            self._leave(sequence)

    def plan(self) -> Step:
        """Admit requests that fit, and return the next step; it is empty if there is nothing."""
        while self.waiting and len(self.running) < self.max_batch and self._admit(self.waiting[0]):
            self.running.append(self.waiting.popleft())
        decode = [Part(sequence, 1) for sequence in self.running if sequence.answering]
        return Step(self._prefill(), decode)

    def advance(self, step: Step, tokens: Items[int]) -> list[tuple[Sequence, int]]:
        """Take in what a step has computed; return each new token with its sequence.

        Args:
            step: what `plan` returned last.
            tokens: one for each part; those of parts that do not complete a prompt mean nothing.
        """
        new = []
        for part, token in zip(step.parts, tokens, strict=True):
            sequence, completes = part.sequence, part.completes
            sequence.cached += part.count
            if not completes:
                continue
            sequence.output.append(token)
            new.append((sequence, token))
            if token in sequence.request.stop:
                sequence.finished = STOP
            elif len(sequence.output) == sequence.request.max_tokens:
                sequence.finished = LENGTH
            if sequence.finished:
                self._leave(sequence)
        return new

    def clear(self) -> list[Sequence]:
        """Forget all requests and return them."""
        all_of_them = [*self.waiting, *self.running]
        for sequence in all_of_them:
            self.cancel(sequence)
        return all_of_them

    def _admit(self, sequence: Sequence) -> bool:
        taken = self.pages.take(pages_for(sequence.request.positions, self.page_tokens))
        sequence.pages = taken or ()
        return taken is not None

    def _prefill(self) -> list[Part]:
        """Return parts of prompts, the oldest first; rows are as long as the longest of them."""
        parts: list[Part] = []
        longest = 0
        for sequence in self.running:
            if sequence.answering:
                continue
            left = len(sequence.request.prompt) - sequence.cached
            count = min(left, self.prefill_tokens)
            if max(longest, count) * (len(parts) + 1) > self.prefill_tokens:
                break
            parts.append(Part(sequence, count))
            longest = max(longest, count)
        return parts

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.pages.give_back(sequence.pages)
        sequence.pages = ()
