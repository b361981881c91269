# SPDX-License-Identifier: Apache-2.0
"""Allocation of this machine's GPUs, and waiting for them.

    locked: read holders and waiting processes ─► placement decides ─► write what this process holds
                                    └─ not now ─► write that it waits ─► try again, later

Waiting processes are served in the order of their arrival: a later one does not overtake, even if
it would fit. The duration of allocations is unknown here, so that backfill would starve large
requests.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import gpupack_placement as core
from gpupack.backend import Patience
from gpupack.errors import NotEnoughGpus
from gpupack.host.books import Books, asked_text, before, request_of
from gpupack.host.folder import HostFolder
from gpupack.host.inventory import Gpus, Inventory
from gpupack.host.locked_file import LockedFile
from gpupack.host.record import Record, holding, shown, waiting
from gpupack.training_config import TrainingGPUConfig

FIRST_PAUSE_SECONDS: Final = 0.02
PAUSE_GROWTH: Final = 1.2
LONGEST_LOOK_SECONDS: Final = 0.5
"""Maximum seconds between tries of the first waiting process: a killed holder sends no notice."""

LONGEST_WATCH_SECONDS: Final = 0.1
"""Maximum seconds between two checks of the process before."""

MAX_TOLD: Final = 4
"""Maximum holders that a refusal names."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The placement that this process now holds, and the books as they were before."""

    file: LockedFile
    placement: core.Placement
    books: Books


class HostLedger:
    """The ledger of this machine.

    Args:
        folder: folder of the ledger.
        gpus: source of the inventory.
        node: name of this machine.
        policy: policy that chooses the GPU of a share.
    """

    def __init__(
        self, folder: HostFolder, gpus: Gpus, *, node: core.NodeName, policy: core.Policy
    ) -> None:
        self._folder, self._gpus = folder, gpus
        self._node, self._policy = node, policy

    def books(self) -> Books:
        """Return what is held now.

        Raises:
            LedgerUnusable: the ledger cannot be read.
            InventoryUnavailable: the driver does not answer.
        """
        inventory = self._gpus.read()
        with self._folder.locked():
            return self._books(inventory)

    def decide(self, books: Books, config: TrainingGPUConfig) -> core.Placement | core.Refusal:
        """Return placement's decision, without regard to waiting processes."""
        return core.decide(books.cluster(), request_of(config), self._policy)

    def take(self, config: TrainingGPUConfig, patience: Patience) -> Taken:
        """Hold GPUs, or wait for them.

        Raises:
            NotEnoughGpus: they were not free in time, never can be, or the wait was ended.
            LedgerUnusable: the ledger cannot be read or written.
            InventoryUnavailable: the driver does not answer.
        """
        until = time.monotonic() + patience.timeout_seconds
        with ExitStack() as stack:
            found = self._try(config, None, then_wait=patience.timeout_seconds > 0)
            turn = None
            if isinstance(found, _Waits):
                turn = found.turn
                stack.callback(found.file.remove)
                self._wait_for_turn(turn, until, patience)
            pauses = _pauses(LONGEST_LOOK_SECONDS)
            while not isinstance(found, Taken):
                _sleep(next(pauses), until, patience, found.why)
                found = self._try(config, turn, then_wait=False)
            return found

    def _wait_for_turn(self, turn: int, until: float, patience: Patience) -> None:
        """Wait until no process waits before; each checks only the one just before it.

        Raises:
            NotEnoughGpus: the time is over.
        """
        while ahead := self._before(turn):
            last = max(ahead, key=lambda name: ahead[name].turn)
            why = _behind(list(ahead.values()))
            with self._folder.watched(last) as has_ended:
                for pause in _pauses(LONGEST_WATCH_SECONDS):
                    if has_ended():
                        break
                    _sleep(pause, until, patience, why)

    def _before(self, turn: int) -> dict[str, Record]:
        with self._folder.locked():
            return before(self._folder.records(), turn)

    def _try(
        self, config: TrainingGPUConfig, turn: int | None, *, then_wait: bool
    ) -> "Taken | _Waits | _Refused":
        inventory = self._gpus.read()
        if turn is None:
            self._require_possible(config, inventory)
        with self._folder.locked():
            books = self._books(inventory)
            ahead = before(books.records, turn)
            why = _behind(list(ahead.values())) if ahead else ""
            if not ahead:
                decision = self.decide(books, config)
                if isinstance(decision, core.Placement):
                    file = self._folder.add(holding(decision, asked_text(config)))
                    return Taken(file, decision, books)
                why = _why_not(books, decision)
            if not then_wait:
                return _Refused(why)
            mine = books.next_turn()
            file = self._folder.add(waiting(mine, asked_text(config)))
            return _Waits(why, mine, file)

    def _require_possible(self, config: TrainingGPUConfig, inventory: Inventory) -> None:
        """Refuse an impossible request, before the ledger is locked: a full reason takes time."""
        books = Books(self._node, inventory, {}, os.getpid())
        decision = core.decide(books.emptied(), request_of(config), self._policy)
        if isinstance(decision, core.Refusal):
            raise NotEnoughGpus(refused(books, decision), never=True)

    def _books(self, inventory: Inventory) -> Books:
        return Books(self._node, inventory, self._folder.records(), os.getpid())


def _pauses(longest: float) -> Iterator[float]:
    """Yield seconds that grow up to a maximum."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(PAUSE_GROWTH * pause, longest)


def _sleep(seconds: float, until: float, patience: Patience, why: str) -> None:
    left = until - time.monotonic()
    if left <= 0 or patience.stop.wait(min(seconds, left)):
        raise NotEnoughGpus(why)


def refused(books: Books, refusal: core.Refusal) -> str:
    """Return why the request does not fit, for users."""
    parts = [refusal.message, books.describe_strangers()]
    if books.inventory.missing:
        return (
            f"this machine has no GPUs: {books.inventory.missing}; to try programs without, set "
            "GPUPACK_SIMULATED_GPUS=8xH100"
        )
    return "; ".join(part for part in parts if part)


def _why_not(books: Books, refusal: core.Refusal) -> str:
    holders = [each for each in books.records.values() if each.kind == "holds"]
    parts = [refused(books, refusal)]
    parts += [f"held by {each.owner}: {shown(each.asked)}" for each in holders[:MAX_TOLD]]
    if len(holders) > MAX_TOLD:
        parts.append(f"and by {len(holders) - MAX_TOLD} more")
    return "; ".join(parts)


def _behind(ahead: Sequence[Record]) -> str:
    first = min(ahead, key=lambda each: each.turn)
    waits = "waits" if len(ahead) == 1 else f"and {len(ahead) - 1} more wait"
    return f"{first.owner} {waits} before: {shown(first.asked)}"


@dataclass(frozen=True, slots=True)
class _Refused:
    """A request that is refused now; `why` is for users."""

    why: str


@dataclass(frozen=True, slots=True)
class _Waits:
    """A request that now waits in `turn`."""

    why: str
    turn: int
    file: LockedFile
