# SPDX-License-Identifier: Apache-2.0
"""GPUs of this machine that are held for a time, for a server's callers.

    acquire: this process holds them ─► locked: write the reservation, release the hold

A server that is killed between these steps has reserved nothing. One that is killed later finds its
reservations when it restarts, since they are only in the ledger. All processes of the machine
respect them. A reservation ends by its time, by `cancel`, or with a reboot, which also ends all
users of the GPUs.
"""

from collections.abc import Mapping
from typing import Final

from gpupack.backend import Patience
from gpupack.errors import LedgerUnusable, NothingHeld
from gpupack.host.folder import HostFolder
from gpupack.host.ledger import HostLedger
from gpupack.host.record import Record, holding_record, reservation_record
from gpupack.host.snapshot import request_text
from gpupack.training_config import TrainingGPUConfig

PREFIX: Final = "reserved-"
"""Prefix of their files' names."""


class Reservations:
    """The reservations of one ledger. Calls may come from several threads and processes."""

    def __init__(self, folder: HostFolder, ledger: HostLedger) -> None:
        self._folder, self._ledger = folder, ledger

    def make(self, name: str, config: TrainingGPUConfig, patience: Patience) -> Record:
        """Hold GPUs for `patience.hold_seconds`; return an existing reservation of that name.

        Args:
            name: letters, digits and dashes.
            config: the request.
            patience: maximum wait, and duration.

        Raises:
            NotEnoughGpus: they were not free in time; nothing is held.
            LedgerUnusable: the ledger cannot be read or written.
            InventoryUnavailable: the driver does not answer.
        """
        if (known := self.find(name)) is not None:
            return known
        held = self._ledger.acquire(config, patience)
        try:
            record = reservation_record(
                holding_record(held.placement, request_text(config)), patience.hold_seconds
            )
            with self._folder.locked():
                if (made := self._own(name)) is not None:
                    return made
                self._folder.reserve(PREFIX + name, record)
                # Before any other read: both together would count twice.
                held.file.remove()
            return record
        finally:
            held.file.remove()

    def find(self, name: str) -> Record | None:
        """Return the reservation of that name; None: there is none now.

        Raises:
            LedgerUnusable: the ledger cannot be read.
        """
        with self._folder.locked():
            return self._own(name)

    def cancel(self, name: str) -> None:
        """Release a reservation's GPUs.

        Raises:
            NothingHeld: there is none of that name.
            LedgerUnusable: the ledger cannot be read, or it is another user's.
        """
        with self._folder.locked():
            if self._own(name) is None:
                raise NothingHeld(f"there is no reservation {name}")
            self._folder.cancel(PREFIX + name)

    def _own(self, name: str) -> Record | None:
        """Return this user's reservation; names can be guessed, so another user's is refused."""
        found = self._folder.records().get(PREFIX + name)
        if found is not None and not self._folder.is_own(PREFIX + name):
            raise LedgerUnusable(
                f"reservation {name} is another user's ({found.owner}); use another name"
            )
        return found


def reservations(records: Mapping[str, Record]) -> dict[str, Record]:
    """Return the reservations among the records, by name."""
    return {
        name.removeprefix(PREFIX): each
        for name, each in records.items()
        if each.reserved_until is not None and name.startswith(PREFIX)
    }
