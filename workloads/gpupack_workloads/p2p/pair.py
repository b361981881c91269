# SPDX-License-Identifier: Apache-2.0
"""Two GPUs of this process: the reader works in the owner's memory.

Direct access is checked by a kernel on the reader that reads every byte of the owner's buffer and
changes it in place: the reader compares what it read, the owner what it has then, and the margins
around it. Each compares with the pattern made anew on its own GPU.

Bandwidth is that of copies out of the owner's memory by the copy engines, and of the reader's own
loads and stores; latency is half the time that a number takes there and back between two kernels
that each wait for it in their own memory.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.kernels.peer.launch import copy, modify, ping
from gpupack_workloads.p2p.pattern import count_wrong, write
from gpupack_workloads.p2p.through_host import Staging
from gpupack_workloads.results import Scalar
from gpupack_workloads.timing import seconds_in_turns

GB = 1e9
MARGIN = 4096
KEY = 0xA5
# Not a multiple of anything: the kernel's last tile is ragged.
SHORT_BY = 13
# The median of so many batches is kept: a virtual machine stops now and then.
BATCHES = 5
REPEATS = 3
SMALL_REPEATS = 40
ROUNDS = 1024


@dataclass(frozen=True)
class Pair:
    """A GPU that reads and modifies, and the GPU whose memory it is."""

    reader: int
    owner: int

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


def check(pair: Pair, size: int, seed: int) -> int:
    """Read and modify the owner's memory; return how many bytes were checked.

    Raises:
        WrongResult: a byte is wrong on either side.
    """
    count = max(1, size - SHORT_BY)
    whole = torch.zeros(count + 2 * MARGIN, dtype=torch.uint8, device=pair.there)
    write(whole, seed)
    seen = torch.zeros(count, dtype=torch.uint8, device=pair.here)
    torch.cuda.synchronize(pair.there)
    with torch.cuda.device(pair.here):
        modify(seen, whole[MARGIN : MARGIN + count], key=KEY)
        torch.cuda.synchronize(pair.here)
    before, own, after = whole.split((MARGIN, count, MARGIN))
    wrong = {
        "read": count_wrong(seen, seed, first=MARGIN),
        "modified": count_wrong(own, seed, first=MARGIN, key=KEY),
        "beside": count_wrong(before, seed) + count_wrong(after, seed, first=MARGIN + count),
    }
    if any(wrong.values()):
        raise WrongResult(
            f"GPU {pair.reader} in the memory of GPU {pair.owner}: of {count} bytes"
            f" {wrong['read']} were read wrongly, {wrong['modified']} modified wrongly,"
            f" {wrong['beside']} beside them changed"
        )
    return count


def measure(pair: Pair, size: int) -> dict[str, Scalar]:
    """Time every way between the two."""
    words = max(1, size // 8)
    here = torch.zeros(words, dtype=torch.int64, device=pair.here)
    there = torch.zeros(words, dtype=torch.int64, device=pair.there)
    staging = Staging(pair.here, pair.there, size)
    speed = partial(gb_per_s, pair, words * 8)
    row: dict[str, Scalar] = {}
    if pair.accessible:
        row["copy_gb_per_s"] = speed(lambda: here.copy_(there, non_blocking=True))
        row["kernel_read_gb_per_s"] = speed(lambda: copy(here, there))
        row["kernel_write_gb_per_s"] = speed(lambda: copy(there, here))
        row["latency_us"] = round(latency(pair) * 1e6, 3)
        row["small_copy_us"] = round(small_copy(pair) * 1e6, 2)
    row["host_gb_per_s"] = speed(lambda: staging.copy(here, there))
    return row


def gb_per_s(pair: Pair, size: int, work: Callable[[], object]) -> float:
    """Return the bandwidth of work on the reader's stream."""
    return round(size / seconds(pair, work, repeats=REPEATS) / GB, 2)


def seconds(pair: Pair, work: Callable[[], object], *, repeats: int) -> float:
    """Return the time of one call on the reader's stream."""
    with torch.cuda.device(pair.here):
        times = seconds_in_turns(
            {"work": work}, device=pair.here, repeats=repeats, rounds=BATCHES, warm_up=2
        )
    return times["work"]


def small_copy(pair: Pair) -> float:
    """Return the seconds of a copy of 8 bytes, called from Python."""
    here = torch.zeros(1, dtype=torch.int64, device=pair.here)
    there = torch.zeros(1, dtype=torch.int64, device=pair.there)
    return seconds(pair, lambda: here.copy_(there, non_blocking=True), repeats=SMALL_REPEATS)


def latency(pair: Pair) -> float:
    """Return the seconds in which a number written here is seen there.

    Raises:
        WrongResult: a number never came.
    """
    # Kernels are loaded before either waits for the other.
    bounce(pair, rounds=0)
    return statistics.median(bounce(pair, rounds=ROUNDS) for _ in range(BATCHES)) / (2 * ROUNDS)


def bounce(pair: Pair, *, rounds: int) -> float:
    """Send a number there and back; return the seconds of all rounds together.

    Raises:
        WrongResult: a number never came.
    """
    sides = (pair.here, pair.there)
    flags = [torch.zeros(1, dtype=torch.int32, device=side) for side in sides]
    done = [torch.zeros(1, dtype=torch.int32, device=side) for side in sides]
    torch.cuda.synchronize(pair.there)
    with torch.cuda.device(pair.there):
        ping(flags[1], flags[0], done[1], rounds=rounds, leader=False)
    with torch.cuda.device(pair.here):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        ping(flags[0], flags[1], done[0], rounds=rounds, leader=True)
        end.record()
        torch.cuda.synchronize(pair.here)
    least = min(int(count.item()) for count in done)
    if least != rounds:
        raise WrongResult(
            f"a number got lost between GPU {pair.reader} and GPU {pair.owner} in round {least + 1}"
            f" of {rounds}"
        )
    return float(start.elapsed_time(end)) / 1000
