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

from gpupack.backend import Patience
from gpupack.errors import NotEnoughGpus
from gpupack.host.folder import HostFolder
from gpupack.host.inventory import Gpus, Inventory
from gpupack.host.locked_file import LockedFile
from gpupack.host.record import Record, holding_record, printable, waiting_record
from gpupack.host.snapshot import HostSnapshot, request_of, request_text, waiting_before
from gpupack.training_config import TrainingGPUConfig
from gpupack_placement import NodeName, Placement, Policy, Refusal, decide

FIRST_PAUSE_SECONDS: Final = 0.02
PAUSE_GROWTH: Final = 1.2
MAX_RETRY_SECONDS: Final = 0.5
"""Maximum seconds between tries of the first waiting process: a killed holder sends no notice."""

MAX_WATCH_SECONDS: Final = 0.1
"""Maximum seconds between two checks of the process ahead."""

MAX_NAMED_HOLDERS: Final = 4
"""Maximum holders that a refusal names."""


@dataclass(frozen=True, slots=True)
class HeldPlacement:
    """The placement that this process now holds, and the snapshot from before."""

    file: LockedFile
    placement: Placement
    snapshot: HostSnapshot


class HostLedger:
    """The ledger of this machine.

    Args:
        folder: folder of the ledger.
        gpus: source of the inventory.
        node: name of this machine.
        policy: policy that chooses the GPU of a share.
    """

    def __init__(
        self,
        folder: HostFolder,
        gpus: Gpus,
        *,
        node: NodeName,
        policy: Policy,
    ) -> None:
        self._folder, self._gpus = folder, gpus
        self._node, self._policy = node, policy

    def snapshot(self) -> HostSnapshot:
        """Return what is held now.

        Raises:
            LedgerUnusable: the ledger cannot be read.
            InventoryUnavailable: the driver does not answer.
        """
        inventory = self._gpus.read()
        with self._folder.locked():
            return self._read_snapshot(inventory)

    def decide(self, snapshot: HostSnapshot, config: TrainingGPUConfig) -> Placement | Refusal:
        """Return placement's decision, without regard to waiting processes."""
        return decide(snapshot.cluster(), request_of(config), self._policy)

    def acquire(self, config: TrainingGPUConfig, patience: Patience) -> HeldPlacement:
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
            if isinstance(found, _Waiting):
                turn = found.turn
                stack.callback(found.file.remove)
                self._wait_for_turn(turn, until, patience)
            pauses = _pauses(MAX_RETRY_SECONDS)
            while not isinstance(found, HeldPlacement):
                _sleep(next(pauses), until, patience, found.why)
                found = self._try(config, turn, then_wait=False)
            return found

    def _wait_for_turn(self, turn: int, until: float, patience: Patience) -> None:
        """Wait until no process waits ahead; each checks only the process directly ahead.

        Raises:
            NotEnoughGpus: the time limit is reached.
        """
        while ahead := self._before(turn):
            last = max(ahead, key=lambda name: ahead[name].turn)
            why = _waiting_text(list(ahead.values()))
            with self._folder.watch(last) as has_ended:
                for pause in _pauses(MAX_WATCH_SECONDS):
                    if has_ended():
                        break
                    _sleep(pause, until, patience, why)

    def _before(self, turn: int) -> dict[str, Record]:
        with self._folder.locked():
            return waiting_before(self._folder.records(), turn)

    def _try(
        self, config: TrainingGPUConfig, turn: int | None, *, then_wait: bool
    ) -> "HeldPlacement | _Waiting | _Refused":
        inventory = self._gpus.read()
        if turn is None:
            self._require_possible(config, inventory)
        with self._folder.locked():
            snapshot = self._read_snapshot(inventory)
            ahead = waiting_before(snapshot.records, turn)
            why = _waiting_text(list(ahead.values())) if ahead else ""
            if not ahead:
                decision = self.decide(snapshot, config)
                if isinstance(decision, Placement):
                    file = self._folder.add(holding_record(decision, request_text(config)))
                    return HeldPlacement(file, decision, snapshot)
                why = _refusal_with_holders(snapshot, decision)
            if not then_wait:
                return _Refused(why)
            mine = snapshot.next_turn()
            file = self._folder.add(waiting_record(mine, request_text(config)))
            return _Waiting(why, mine, file)

    def _require_possible(self, config: TrainingGPUConfig, inventory: Inventory) -> None:
        """Refuse an impossible request, before the ledger is locked: a full reason takes time."""
        snapshot = HostSnapshot(self._node, inventory, {}, os.getpid())
        decision = decide(snapshot.empty_cluster(), request_of(config), self._policy)
        if isinstance(decision, Refusal):
            raise NotEnoughGpus(refusal_text(snapshot, decision), never=True)

    def _read_snapshot(self, inventory: Inventory) -> HostSnapshot:
        return HostSnapshot(self._node, inventory, self._folder.records(), os.getpid())


def _pauses(max_seconds: float) -> Iterator[float]:
    """Yield seconds that grow up to a maximum."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(PAUSE_GROWTH * pause, max_seconds)


def _sleep(seconds: float, until: float, patience: Patience, why: str) -> None:
    left = until - time.monotonic()
    if left <= 0 or patience.stop.wait(min(seconds, left)):
        raise NotEnoughGpus(why)


def refusal_text(snapshot: HostSnapshot, refusal: Refusal) -> str:
    """Return why the request does not fit, for users."""
    parts = [refusal.message, snapshot.describe_other_users()]
    if snapshot.inventory.missing:
        return (
            f"this machine has no GPUs: {snapshot.inventory.missing}; to try programs without "
            "GPUs, set GPUPACK_SIMULATED_GPUS=8xH100"
        )
    return "; ".join(part for part in parts if part)


def _refusal_with_holders(snapshot: HostSnapshot, refusal: Refusal) -> str:
    holders = [each for each in snapshot.records.values() if each.kind == "holds"]
    parts = [refusal_text(snapshot, refusal)]
    parts += [
        f"held by {each.owner}: {printable(each.request)}" for each in holders[:MAX_NAMED_HOLDERS]
    ]
    if len(holders) > MAX_NAMED_HOLDERS:
        parts.append(f"and by {len(holders) - MAX_NAMED_HOLDERS} more")
    return "; ".join(parts)


def _waiting_text(ahead: Sequence[Record]) -> str:
    first = min(ahead, key=lambda each: each.turn)
    waits = "waits" if len(ahead) == 1 else f"and {len(ahead) - 1} more wait"
    return f"{first.owner} {waits} ahead: {printable(first.request)}"


@dataclass(frozen=True, slots=True)
class _Refused:
    """A request that is refused now; `why` is for users."""

    why: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request that now waits in `turn`."""

    why: str
    turn: int
    file: LockedFile
