# SPDX-License-Identifier: Apache-2.0
"""SIGTERM: remembered here, agreed on by all ranks after a step.

A rank that left at once would leave the others waiting for it in a collective. The kubelet signals
the workers of a gang one by one, if it signals more than one at all, so whoever got the signal
tells the others with the next loss.
"""

import signal
from types import FrameType, TracebackType
from typing import Self


class Stop:
    """Whether this process was told to end."""

    def __init__(self) -> None:
        self.asked = False
        self._before: object = None

    def __enter__(self) -> Self:
        """Take the signal."""
        self._before = signal.signal(signal.SIGTERM, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the signal to who had it."""
        signal.signal(signal.SIGTERM, self._before)  # type: ignore[arg-type]

    def _remember(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.asked = True
