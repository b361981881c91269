# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/your-own-image.md from the report of the launchers' test.

    LAUNCHERS_REPORT=docs/reports/launchers.json make test-launchers
    python benchmarks/launchers_table.py

Each row is one job of tests/e2e/test_launchers.py, with the facts that its processes reported.
"""

import json
from pathlib import Path
from typing import Any

import documents

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "docs" / "reports" / "launchers.json"
DOCUMENT = ROOT / "docs" / "your-own-image.md"
NAME = "launchers"
MAX_COMMAND = 64
"""Maximum length of a command that the table shows whole."""
HEAD = ("manifest", "command", "workers x GPUs", "rank", "world size", "local rank", "device")


def main() -> None:
    """Write the table into the document."""
    found = json.loads(REPORT.read_text())
    text = documents.replaced(DOCUMENT.read_text(), NAME, table(found))
    DOCUMENT.write_text(text)


def table(report: dict[str, Any]) -> str:
    """Return a row for each job, with the facts of its processes by worker."""
    return documents.table(HEAD, (_row(each) for each in report.values()))


def _row(job: dict[str, Any]) -> list[str]:
    example = job["example"]
    return [
        f"[{example}](../examples/launchers/{example}.yaml)",
        f"`{_command(job['command'])}`",
        f"{job['workers']} x {job['gpus']}",
        _by_worker(job, 1),
        _both(job, 2),
        _by_worker(job, 3),
        _both(job, 4),
    ]


def _by_worker(job: dict[str, Any], field: int) -> str:
    """Return a field of all processes: 0, 1; 2, 3 for two workers of two processes."""
    workers = (
        ", ".join(each[field] for each in job["processes"] if each[0] == worker)
        for worker in range(job["workers"])
    )
    return "; ".join(workers)


def _both(job: dict[str, Any], field: int) -> str:
    """Return what all processes have in common; what differs is listed."""
    return ", ".join(sorted({each[field] for each in job["processes"]}))


def _command(command: list[str]) -> str:
    """Return the command without what a shell prepares, and without the folder of the script."""
    words = " ".join(command[-1].split()) if command[0] == "sh" else " ".join(command)
    launched = words.rpartition("exec ")[2].replace("/scripts/", "")
    first, *_, last = launched.split(" ")
    return launched if len(launched) <= MAX_COMMAND else f"{first} … {last}"


if __name__ == "__main__":
    main()
