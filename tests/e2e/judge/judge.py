# SPDX-License-Identifier: Apache-2.0
"""The judge of exclusiveness: takes an exclusive lock on a host file for each GPU it was given.

It knows nothing of ledgers, annotations or tickets, only of its environment and of the kernel's
locks, which go when the process goes. Usage: judge.py SECONDS [EXIT_CODE [MESSAGE]]

Exit codes: 41 no devices in the environment, 42 somebody holds one of them; else EXIT_CODE.
"""

import fcntl
import json
import os
import pathlib
import sys
import time

LOCKS = pathlib.Path("/locks")
TERMINATION_LOG = pathlib.Path("/dev/termination-log")
NO_DEVICES, REFUSED = 41, 42


def main() -> int:
    devices = [uuid for uuid in os.environ.get("GPUPACK_DEVICES", "").split(",") if uuid]
    if not devices:
        return NO_DEVICES
    held = []
    for uuid in devices:
        lock = (LOCKS / uuid).open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (LOCKS / f"refused-{uuid}-{os.uname().nodename}").touch()
            return REFUSED
        held.append(lock)
    time.sleep(float(sys.argv[1]))
    TERMINATION_LOG.write_text(sys.argv[3] if len(sys.argv) > 3 else result(devices))
    return int(sys.argv[2]) if len(sys.argv) > 2 else 0


def result(devices: list[str]) -> str:
    return json.dumps(
        {
            "schema": "gpupack.dev/result/v1",
            "workload": "judge",
            "headline": f"held {len(devices)}",
            "metrics": {"devices": ",".join(devices), "node": os.environ.get("NODE", "")},
        }
    )


if __name__ == "__main__":
    sys.exit(main())
