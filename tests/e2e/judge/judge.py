# SPDX-License-Identifier: Apache-2.0
"""The judge of exclusiveness: holds locks on host files for the GPUs that its container was given.

It does not use ledgers, annotations or device tokens: only what its container's environment says it
was given, what the test says it asked for, and the kernel's locks, which go when the process goes.

    LOCKS/UUID            one per GPU; whole: exclusive for life; share: shared for life
    LOCKS/cut-UUID        shared for the life of a MIG slice of that GPU
    LOCKS/guard-UUID      exclusive while a share or a slice of that GPU is judged
    LOCKS/shares-UUID/*   one per share: its percent and MiB; exclusive for life, so an entry that
                          can be locked is of a dead process
    LOCKS/peak-UUID       the most that shares of this GPU ever held at once
    LOCKS/refused-*       written when the judge refuses; the text says why

Usage: judge.py SECONDS [EXIT_CODE [MESSAGE]], where SECONDS is a number, or `term`: until SIGTERM.

The test says by environment:
    JUDGE_LOCKS           the folder of locks (/locks)
    JUDGE_SHARE           PERCENT/MIB that the container asked for; empty: whole GPUs
    JUDGE_GPU_MEMORY_MIB  what one GPU has; needed for shares
    JUDGE_LINGER_SECONDS  how long the GPUs are still used after SIGTERM (0)
    JUDGE_IDS             what may be given, as JSON: {UUID: UUID of the GPU that the slice is part
                          of, or empty}; nothing: anything. Another vendor's plugin gives by
                          STAND_IN_DEVICES.

Exit codes: 41 no devices in the environment, 42 another container holds too much of one, 43 other
devices than requested; else EXIT_CODE.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import sys
import time

LOCKS = pathlib.Path(os.environ.get("JUDGE_LOCKS", "/locks"))
TERMINATION_LOG = pathlib.Path(os.environ.get("JUDGE_TERMINATION_LOG", "/dev/termination-log"))
NO_DEVICES, REFUSED, OTHER = 41, 42, 43
UNTIL_TERM = "term"
NOTHING = {"percent": 0, "memoryMiB": 0, "shares": 0}


class Refused(Exception):
    """Another container holds a device of this one; the text names it."""


def main() -> int:
    if sys.argv[1] == UNTIL_TERM:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # so that use() can wait for it
    variables = [os.environ.get(name, "") for name in ("GPUPACK_DEVICES", "STAND_IN_DEVICES")]
    devices = [uuid for uuid in ",".join(variables).split(",") if uuid]
    if not devices:
        return NO_DEVICES
    share, may = asked(), json.loads(os.environ.get("JUDGE_IDS") or "null")
    if may is not None and (others := sorted(set(devices) - may.keys())):
        return refuse(others[0], f"asked for one of {sorted(may)}", OTHER)
    if difference := given_otherwise(devices, share):
        return refuse(devices[0], difference, OTHER)
    held = []
    for uuid in devices:
        try:
            held += hold_share(uuid, share) if share else hold_whole(uuid, (may or {}).get(uuid))
        except Refused as refusal:
            return refuse(uuid, str(refusal), REFUSED)
    use(sys.argv[1])
    with contextlib.suppress(FileNotFoundError):
        TERMINATION_LOG.write_text(sys.argv[3] if len(sys.argv) > 3 else result(devices))
    return int(sys.argv[2]) if len(sys.argv) > 2 else 0


def asked() -> dict | None:
    """The share that the test asked for; None: whole GPUs."""
    if not os.environ.get("JUDGE_SHARE"):
        return None
    percent, memory = os.environ["JUDGE_SHARE"].split("/")
    return {"percent": int(percent), "memoryMiB": int(memory)}


def given_otherwise(devices: list[str], share: dict | None) -> str:
    """Return what differs between request and allocation; empty if nothing does."""
    percent = int(os.environ.get("GPUPACK_DEVICE_PERCENT", "100"))
    if share is None:
        return "" if percent == 100 else f"asked for whole GPUs, given {percent} %"
    memory = int(os.environ["GPUPACK_DEVICE_MEMORY_MIB"])
    given = {"percent": percent, "memoryMiB": memory}
    if given == share and len(devices) == 1:
        return ""
    return f"asked for {share} of one GPU, given {given} of {len(devices)}"


def hold_whole(uuid: str, parent: str | None = None) -> list:
    lock = (LOCKS / uuid).open("a+")
    if not lock_now(lock, fcntl.LOCK_EX):
        raise Refused("held by another")
    if parent:
        return [lock, *hold_slice_of(parent)]
    require_uncut(uuid)
    return [lock]


def hold_slice_of(gpu: str) -> list:
    """Both sides hold their own lock before they look at the other's."""
    with (LOCKS / f"guard-{gpu}").open("a+") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        cut = (LOCKS / f"cut-{gpu}").open("a+")
        with (LOCKS / gpu).open("a+") as whole:
            if not lock_now(cut, fcntl.LOCK_SH) or not lock_now(whole, fcntl.LOCK_EX):
                raise Refused("its GPU is held by another, whole or as a share")
    return [cut]


def require_uncut(gpu: str) -> None:
    with (LOCKS / f"cut-{gpu}").open("a+") as cut:
        if not lock_now(cut, fcntl.LOCK_EX):
            raise Refused("a slice of it is held by another")


def hold_share(uuid: str, share: dict) -> list:
    with (LOCKS / f"guard-{uuid}").open("a+") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        lock = (LOCKS / uuid).open("a+")
        if not lock_now(lock, fcntl.LOCK_SH):
            raise Refused("held whole by another")
        require_uncut(uuid)
        total = add(live_shares(uuid), share)
        memory = int(os.environ["JUDGE_GPU_MEMORY_MIB"])
        if total["percent"] > 100 or total["memoryMiB"] > memory:
            raise Refused(f"shares sum up to {total} of 100 % and {memory} MiB")
        entry = write_entry(uuid, share)
        raise_peak(uuid, total)
    return [lock, entry]


def live_shares(uuid: str) -> dict:
    """Sum of the shares whose process lives; entries of the others are removed."""
    total = NOTHING
    for path in folder_of_shares(uuid).iterdir():
        with path.open("r+") as entry:
            if lock_now(entry, fcntl.LOCK_EX):
                path.unlink()
            else:
                total = add(total, json.load(entry))
    return total


def write_entry(uuid: str, share: dict):
    path = folder_of_shares(uuid) / f"{os.uname().nodename}-{os.getpid()}-{time.time_ns()}"
    entry = path.open("x")
    fcntl.flock(entry, fcntl.LOCK_EX)
    json.dump(share, entry)
    entry.flush()
    return entry


def folder_of_shares(uuid: str) -> pathlib.Path:
    folder = LOCKS / f"shares-{uuid}"
    folder.mkdir(exist_ok=True)
    return folder


def add(total: dict, share: dict) -> dict:
    return {
        "percent": total["percent"] + share["percent"],
        "memoryMiB": total["memoryMiB"] + share["memoryMiB"],
        "shares": total["shares"] + 1,
    }


def raise_peak(uuid: str, total: dict) -> None:
    path = LOCKS / f"peak-{uuid}"
    before = json.loads(path.read_text()) if path.exists() else NOTHING
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps({key: max(total[key], before[key]) for key in total}))
    fresh.replace(path)  # whole, though we may be killed


def lock_now(file, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def refuse(uuid: str, why: str, status: int) -> int:
    (LOCKS / f"refused-{uuid}-{os.uname().nodename}").write_text(why)
    print(f"{uuid}: {why}", file=sys.stderr)
    return status


def use(duration: str) -> None:
    """Use the GPUs: hold their locks."""
    if duration != UNTIL_TERM:
        time.sleep(float(duration))
        return
    signal.sigwait({signal.SIGTERM})
    time.sleep(float(os.environ.get("JUDGE_LINGER_SECONDS", "0")))


def result(devices: list[str]) -> str:
    metrics = {
        "devices": ",".join(devices),
        "percent": os.environ.get("GPUPACK_DEVICE_PERCENT", "100"),
        "memoryMiB": os.environ.get("GPUPACK_DEVICE_MEMORY_MIB", "0"),
        "node": os.environ.get("NODE", ""),
    }
    return json.dumps(
        {
            "schema": "gpupack.dev/result/v1",
            "workload": "judge",
            "headline": f"held {len(devices)}",
            "metrics": metrics,
        }
    )


if __name__ == "__main__":
    sys.exit(main())
