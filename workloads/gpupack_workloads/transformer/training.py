# SPDX-License-Identifier: Apache-2.0
"""Trains: steps from where the last attempt stopped, checkpoints, an agreed end.

Losses stay on the device, and word of a signal is read one step late, so that the device always has
the next step's work while the host reads.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import Interrupted
from gpupack_workloads.transformer.checkpoint.folder import Checkpoint
from gpupack_workloads.transformer.checkpoint.loss_log import note
from gpupack_workloads.transformer.checkpoint.state import load, save
from gpupack_workloads.transformer.parallel import Learner
from gpupack_workloads.transformer.stopping import Stop
from gpupack_workloads.transformer.verification import (
    CurveErrors,
    language_of,
    require_first,
    require_numbers,
)

logger = logging.getLogger(__name__)

FETCHED_AT_ONCE = 1000


@dataclass(frozen=True)
class CheckpointOptions:
    """Settings of checkpoints: folder, interval, and the one to continue from; no folder: none.

    Attributes:
        attempt: the number that this start has claimed in the folder.
        checked: what a comparison of first steps found, computed as they will be here.
        expected: losses of the first steps from the start; none where this run compared nothing.
    """

    folder: Path | None
    every: int
    attempt: int
    found: Checkpoint | None = None
    checked: CurveErrors | None = None
    expected: tuple[float, ...] = ()


@dataclass(frozen=True)
class Trained:
    """Outcome of a training.

    Attributes:
        first: steps that earlier attempts had done.
        losses: losses of the steps of this one.
        save_seconds: seconds of the slowest checkpoint; 0 where there was none.
    """

    first: int
    losses: list[float]
    save_seconds: float


def train(learner: Learner, keeping: CheckpointOptions) -> Trained:
    """Train to the planned number of steps.

    Raises:
        Interrupted: a signal to end came to one of the ranks; all have saved.
        WrongResult: losses are no numbers, or the first ones not those that are expected.
    """
    with Stop() as stop:
        first = 0
        if keeping.folder is not None and keeping.found is not None:
            load(learner, keeping.folder, keeping.found)
            first = keeping.found.step
        return Training(learner, keeping, stop, first).run()


class Training:
    """One attempt's steps."""

    def __init__(
        self, learner: Learner, keeping: CheckpointOptions, stop: Stop, first: int
    ) -> None:
        self.learner, self.keeping, self.stop, self.first = learner, keeping, stop, first
        self.expected = keeping.expected if first == 0 else ()
        self.language = language_of(learner.plan, learner.world_rank.device)
        self.losses: list[float] = []
        self.on_device: list[torch.Tensor] = []
        self.words: deque[torch.Tensor] = deque(maxlen=2)
        self.save_seconds = 0.0
        self.saved_at: int | None = None
        self.noted = 0

    def run(self) -> Trained:
        """Take all steps."""
        for step in range(self.first, self.learner.plan.steps):
            self.take(step)
            due = (step + 1) % self.keeping.every == 0 or step + 1 == self.learner.plan.steps
            stopping = self.stop_requested()
            if due or stopping:
                self.save(step + 1)
            if stopping:
                raise Interrupted(f"stopped after step {step + 1}: {self.where()}")
        self.fetch()
        return Trained(first=self.first, losses=self.losses, save_seconds=self.save_seconds)

    def take(self, step: int) -> None:
        """Take a step and tell all ranks whether this rank must end."""
        plan = self.learner.plan
        batch = self.language.batch(step, rows=plan.batch_size, length=plan.shape.sequence)
        self.on_device.append(self.learner.step(batch))
        if len(self.on_device) >= FETCHED_AT_ONCE:
            self.fetch()
        word = torch.tensor(float(self.stop.requested), device=self.learner.world_rank.device)
        dist.all_reduce(word, op=dist.ReduceOp.MAX)
        self.words.append(word)

    def stop_requested(self) -> bool:
        """Return whether any rank had to end before the step before this one."""
        return len(self.words) > 1 and bool(self.words[0].item())

    def fetch(self) -> None:
        """Copy the losses so far to the host, and check them."""
        fresh = torch.stack(self.on_device).tolist() if self.on_device else []
        self.on_device.clear()
        self.losses += fresh
        with all_or_none():
            require_numbers(fresh)
            require_first(self.losses, self.expected, self.learner.plan)

    def save(self, done: int) -> None:
        """Write a checkpoint, if they are kept."""
        if self.keeping.folder is None:
            return
        # The next attempt must not go on from a network that has lost its numbers.
        self.fetch()
        start = time.perf_counter()
        self.note_losses()
        save(
            self.learner,
            self.keeping.folder,
            Checkpoint(step=done, attempt=self.keeping.attempt),
            self.keeping.checked,
        )
        self.save_seconds = max(self.save_seconds, time.perf_counter() - start)
        self.saved_at = done

    def note_losses(self) -> None:
        """Write losses that are in no file yet next to the checkpoints."""
        keeping, rank = self.keeping, self.learner.world_rank
        with all_or_none():
            if rank.index == 0 and keeping.folder is not None:
                fresh, first = self.losses[self.noted :], self.first + self.noted
                note(keeping.folder, keeping.attempt, fresh, first=first, ranks=rank.ranks)
        self.noted = len(self.losses)

    def where(self) -> str:
        """Say what is kept of the training."""
        if self.saved_at is None:
            return "nothing is kept, for there is no --checkpoint folder"
        return f"saved in {self.keeping.folder}"
