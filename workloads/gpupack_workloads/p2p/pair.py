# SPDX-License-Identifier: Apache-2.0
"""Two GPUs of this process: the reader works in the owner's memory."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Pair:
    """A GPU that reads and modifies, and the GPU whose memory it is."""

    reader: int
    owner: int

    def __str__(self) -> str:
        """Return both names for error messages."""
        return f"GPU {self.reader} and the memory of GPU {self.owner}"

    @property
    def here(self) -> torch.device:
        """The reader."""
        return torch.device("cuda", self.reader)

    @property
    def there(self) -> torch.device:
        """The owner."""
        return torch.device("cuda", self.owner)

    @property
    def accessible(self) -> bool:
        """Whether the driver lets both reach the other's memory."""
        can = torch.cuda.can_device_access_peer
        return bool(can(self.reader, self.owner) and can(self.owner, self.reader))

    def open(self) -> None:
        """Map the memory both ways, which torch does at the first copy of each."""
        for one, other in ((self.here, self.there), (self.there, self.here)):
            torch.ones(1, device=one).to(other)
            torch.cuda.synchronize(other)
