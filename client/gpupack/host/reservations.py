# SPDX-License-Identifier: Apache-2.0
"""GPUs of this machine that are held for a time, whichever process lives: of a server's callers.

    take: this process holds them ─► locked: write the reservation, let go of the hold

A server that is killed between these steps has nothing reserved; one that is killed later finds
what it reserved when it starts anew, since that is nowhere but in the ledger. All processes of the
machine take it into account. It ends by its time, by `cancel`, or when the machine starts anew,
with which whatever used the GPUs has ended, too.
"""

from collections.abc import Mapping
from typing import Final

from gpupack.backend import Patience
from gpupack.errors import LedgerUnusable, NothingHeld
from gpupack.host.books import asked_text
from gpupack.host.folder import HostFolder
from gpupack.host.ledger import HostLedger
from gpupack.host.record import Record, holding, reserved
from gpupack.training_config import TrainingGPUConfig

PREFIX: Final = "reserved-"
"""Of their files' names."""


class Reservations:
    """Of one ledger. Its calls may be made from several threads and processes."""

    def __init__(self, folder: HostFolder, ledger: HostLedger) -> None:
        self._folder, self._ledger = folder, ledger

    def make(self, name: str, config: TrainingGPUConfig, patience: Patience) -> Record:
        """Hold GPUs for `patience.hold_seconds`; those of that name, where there are any.

        Args:
            name: letters, digits and dashes.
            config: what is held.
            patience: how long it is waited for.

        Raises:
            NotEnoughGpus: they were not free in time; nothing is held.
            LedgerUnusable: the ledger cannot be read or written.
            InventoryUnavailable: the driver does not answer.
        """
        if (known := self.find(name)) is not None:
            return known
        taken = self._ledger.take(config, patience)
        try:
            record = reserved(holding(taken.placement, asked_text(config)), patience.hold_seconds)
            with self._folder.locked():
                if (made := self._own(name)) is not None:
                    return made
                self._folder.reserve(PREFIX + name, record)
                # Before anybody else looks: both together would count twice.
                taken.file.remove()
            return record
        finally:
            taken.file.remove()

    def find(self, name: str) -> Record | None:
        """The reservation of that name; None: there is none now.

        Raises:
            LedgerUnusable: the ledger cannot be read.
        """
        with self._folder.locked():
            return self._own(name)

    def cancel(self, name: str) -> None:
        """Give its GPUs back.

        Raises:
            NothingHeld: there is none of that name.
            LedgerUnusable: the ledger cannot be read, or it is another user's.
        """
        with self._folder.locked():
            if self._own(name) is None:
                raise NothingHeld(f"there is no reservation {name}")
            self._folder.cancel(PREFIX + name)

    def _own(self, name: str) -> Record | None:
        """Names can be guessed: another user's is not handed to this one's callers."""
        found = self._folder.records().get(PREFIX + name)
        if found is not None and not self._folder.is_own(PREFIX + name):
            raise LedgerUnusable(
                f"reservation {name} is another user's ({found.owner}); take another name"
            )
        return found


def reservations(records: Mapping[str, Record]) -> dict[str, Record]:
    """Those among what is held, by name."""
    return {
        name.removeprefix(PREFIX): each
        for name, each in records.items()
        if each.reserved_until is not None and name.startswith(PREFIX)
    }
