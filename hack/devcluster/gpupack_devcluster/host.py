# SPDX-License-Identifier: Apache-2.0
"""Changes to the host outside the cluster's own folders, and their undoing.

The kubelet sets kernel variables that have no namespace, and a node's mounts need folders as mount
points. The old values are recorded in /run: like the values themselves they last until the next
boot, and they survive a deleted state folder.
"""

import json
from contextlib import suppress
from pathlib import Path

RECORD = Path("/run/gpupack-devcluster.json")
VARIABLES = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
)
MOUNT_POINTS = (
    Path("/var/lib/kubelet"),
    Path("/var/lib/cni"),
    Path("/var/log/pods"),
    Path("/var/log/containers"),
)
SYSCTL = Path("/proc/sys")


def prepare(*, forward: bool, record: Path = RECORD) -> None:
    """Record the old state once, then make the changes."""
    if not record.exists():
        missing = [str(folder) for folder in MOUNT_POINTS if not folder.exists()]
        values = {name: (SYSCTL / name).read_text().strip() for name in VARIABLES}
        record.write_text(json.dumps({"variables": values, "folders": missing}))
    for folder in MOUNT_POINTS:
        folder.mkdir(parents=True, exist_ok=True)
    if forward:
        (SYSCTL / "net/ipv4/ip_forward").write_text("1")


def restore(*, record: Path = RECORD) -> None:
    """Restore the host; a folder that has been filled since then stays."""
    if not record.exists():
        return
    noted = json.loads(record.read_text())
    for name, value in noted["variables"].items():
        if (SYSCTL / name).read_text().strip() != value:
            (SYSCTL / name).write_text(value)
    for folder in noted["folders"]:
        with suppress(OSError):
            Path(folder).rmdir()
    record.unlink()
