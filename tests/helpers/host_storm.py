# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - run as a script it finds the library only once main() has said where it is
"""Processes that take GPUs of one machine, whole ones and shares, and are killed at random.

    python tests/helpers/host_storm.py --seeds 1 2 3 4 5 --seconds 60

The judge is not the ledger: each process that was given GPUs locks a file for each of them by the
cluster suites' judge (tests/e2e/judge/judge.py), which refuses where another process has it. A seed
gives the same requests of each process and the same order of kills. Prints a line of JSON for each
seed, and fails where the judge refused or a GPU was lost.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

GPUS = 8
MEMORY_GB = 80.0
MIB_PER_GB = 1e9 / 2**20
SIZES = (1, 1, 1, 2, 3, 8)
KILL_SECONDS = 0.03


class Storm:
    """One seed's."""

    def __init__(self, folder, *, seed, processes):
        self.folder, self.seed, self.processes = pathlib.Path(folder), seed, processes
        self.locks, self.ledger = self.folder / "locks", self.folder / "ledger"
        self.locks.mkdir()
        self.counted = self.folder / "counted"
        os.environ["JUDGE_GPU_MEMORY_MIB"] = str(int(MEMORY_GB * MIB_PER_GB) + 1)
        _load(self.locks)
        self._random = random.Random(seed)
        self._living, self._started, self.kills = [], 0, 0

    def run(self, seconds):
        """Start, kill and restart processes; at the end kill all and check what is left."""
        until = time.monotonic() + seconds
        for _ in range(self.processes):
            self._start()
        while time.monotonic() < until:
            time.sleep(self._random.expovariate(1 / KILL_SECONDS))
            self._kill(self._random.randrange(len(self._living)))
            self._start()
        while self._living:
            self._kill(0)
        return self._judged()

    def _start(self):
        self._started += 1
        pid = os.fork()
        if pid:
            self._living.append(pid)
            return
        try:
            Worker(self, random.Random(f"{self.seed}-{self._started}")).run()
        finally:
            os._exit(1)

    def _kill(self, place):
        pid = self._living.pop(place)
        if self._random.random() < 0.2:
            os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.kills += 1

    def _judged(self):
        from host_gpus import manager

        refused = [path.read_text() for path in self.locks.glob("refused-*")]
        counted = self.counted.read_text() if self.counted.exists() else ""
        with manager(self.ledger, f"{GPUS}xH100") as machine:
            free = machine.get_gpu_status().available_gpus
            left = sorted(path.name for path in self.ledger.glob("*.json"))
        return {
            "seed": self.seed,
            "processes": self.processes,
            "started": self._started,
            "killed": self.kills,
            "allocated": counted.count("a"),
            "of_these_shares": counted.count("s"),
            "not_in_time": counted.count("n"),
            "failed": counted.count("f"),
            "refused_by_judge": refused,
            "free_at_end": free,
            "left": left,
        }


class Worker:
    """One process: takes, uses, gives back, until it is killed."""

    def __init__(self, storm, chance):
        from host_gpus import manager

        self._storm, self._random = storm, chance
        self._machine = manager(storm.ledger, f"{GPUS}xH100")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._counted = os.open(storm.counted, flags)

    def run(self):
        try:
            while True:
                self._take()
        except BaseException:
            self._count("f")
            raise

    def _take(self):
        from gpupack import NotEnoughGpus

        try:
            allocation = self._machine.allocate_gpu_resources(
                self._asked(), timeout_seconds=self._random.uniform(0, 10)
            )
        except NotEnoughGpus:
            self._count("n")
            return
        self._use(allocation)

    def _asked(self):
        from gpupack import TrainingGPUConfig

        if self._random.random() < 0.5:
            return TrainingGPUConfig(gpu_count=self._random.choice(SIZES))
        return TrainingGPUConfig(
            compute_ratio=self._random.randrange(10, 100, 10) / 100,
            memory_gb=self._random.uniform(1, MEMORY_GB),
        )

    def _use(self, allocation):
        """The judge's files are closed first, here as in a process that is killed."""
        import judge

        config = allocation.config
        share = {"percent": config.percent, "memoryMiB": config.memory_mib}
        held = []
        for uuid in allocation.device_uuids:
            try:
                held += judge.hold_share(uuid, share) if config.is_share else judge.hold_whole(uuid)
            except judge.Refused as refusal:
                judge.refuse(f"{uuid}-{os.getpid()}", str(refusal), judge.REFUSED)
        self._count("s" if config.is_share else "")
        self._count("a")
        time.sleep(self._random.expovariate(50))
        for each in held:
            each.close()
        allocation.release()

    def _count(self, what):
        os.write(self._counted, what.encode())


def _load(locks):
    """Before processes are forked: each would take a second for it."""
    import host_gpus  # noqa: F401
    import judge

    judge.LOCKS = locks


def is_sound(outcome):
    """No GPU was given twice, none was lost, nothing failed, and the storm was one."""
    return (
        not outcome["refused_by_judge"]
        and outcome["free_at_end"] == GPUS
        and not outcome["left"]
        and not outcome["failed"]
        and outcome["allocated"] >= 20
        and outcome["of_these_shares"]
        and outcome["killed"] > outcome["processes"]
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=50)
    asked = parser.parse_args()
    root = pathlib.Path(__file__).parents[2]
    libraries = (f"lib/{each}" for each in ("devices", "restapi", "placement", "kubeclient"))
    sys.path[:0] = [str(root / each) for each in (*libraries, "client", "tests/e2e/judge")]
    sound = True
    for seed in asked.seeds:
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
            storm = Storm(folder, seed=seed, processes=asked.processes)
            outcome = storm.run(asked.seconds)
            print(json.dumps(outcome), flush=True)
            sound = sound and is_sound(outcome)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
