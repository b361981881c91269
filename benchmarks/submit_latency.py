# SPDX-License-Identifier: Apache-2.0
"""Measures the time to a job's first line of output: `python benchmarks/submit_latency.py [PAIRS]`.

Takes turns on the running cluster, from the start of the command to the first line of the job
on stdout:

* `gpupack submit`, as installed with this Python;
* `kubectl apply -f` of the manifest that `gpupack submit --dry-run` prints, and then
  `kubectl logs -f job/NAME-1`, which itself waits for the pod to run; it is called again, without a
  pause, for as long as there is no such Job.

Prints the medians and their difference in seconds, taken in one run, as JSON. KUBECONFIG and
kubectl are those of the caller.
"""

import json
import os
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

PAIRS = 15
IMAGE = os.environ.get("GPUPACK_IMAGE", "docker.io/gpupack/judge:dev")
PROGRAM = ("python3", "-c", "print('first', flush=True)")
GPUPACK = str(pathlib.Path(sys.executable).with_name("gpupack"))
TIMEOUT_SECONDS = 120


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command that must succeed."""
    return subprocess.run(command, check=True, capture_output=True, **options)  # noqa: S603


def first_line(command: list[str], began: float) -> float | None:
    """Return the seconds from `began` to the command's first line; None if it printed none."""
    with subprocess.Popen(  # noqa: S603 - a list
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as running:
        assert running.stdout is not None  # noqa: S101 - it is a pipe
        line = running.stdout.readline()
        took = time.monotonic() - began
    return took if line else None


def manifest(name: str, namespace: str, folder: pathlib.Path) -> pathlib.Path:
    """Write what `gpupack submit` would create; return the path."""
    shown = run(*submission(name, namespace, "--dry-run"))
    path = folder / f"{name}.yaml"
    path.write_bytes(shown.stdout)
    return path


def submission(name: str, namespace: str, *more: str) -> list[str]:
    """Return the user's command."""
    options = ("-n", namespace, "--name", name, "--image", IMAGE, *more)
    return [GPUPACK, "submit", *options, "--", *PROGRAM]


def by_gpupack(name: str, namespace: str, _folder: pathlib.Path) -> float:
    """Return the seconds of one command."""
    command = submission(name, namespace)
    took = first_line(command, time.monotonic())
    assert took is not None, command  # noqa: S101 - the job prints a line
    return took


def by_kubectl(name: str, namespace: str, folder: pathlib.Path) -> float:
    """Return the seconds of two commands; the manifest is written before."""
    path = manifest(name, namespace, folder)
    began = time.monotonic()
    run("kubectl", "apply", "-f", str(path))
    logs = ["kubectl", "logs", "-n", namespace, "-f", f"job/{name}-1"]
    while time.monotonic() - began < TIMEOUT_SECONDS:
        if (took := first_line(logs, began)) is not None:
            return took
    raise TimeoutError(name)


def measured(pairs: int, namespace: str) -> dict[str, list[float]]:
    """Return the seconds of each, measured in turns, so that other load affects both."""
    ways: dict[str, Callable[[str, str, pathlib.Path], float]] = {
        "gpupack": by_gpupack,
        "kubectl": by_kubectl,
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(pairs):
            # The order alternates, too.
            for way in sorted(ways, reverse=number % 2 == 1):
                name = f"{way}-{number}"
                found[way].append(ways[way](name, namespace, pathlib.Path(folder)))
                run("kubectl", "delete", "-n", namespace, "gpujob", name, "--wait=true")
    return found


def main() -> None:
    """Measure, and print."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    namespace = f"submit-latency-{secrets.token_hex(3)}"
    run("kubectl", "create", "namespace", namespace)
    try:
        found = measured(pairs, namespace)
    finally:
        run("kubectl", "delete", "namespace", namespace, "--wait=false")
    medians = {way: statistics.median(seconds) for way, seconds in found.items()}
    print(
        json.dumps(
            {
                "pairs": pairs,
                "median_seconds": {way: round(each, 3) for way, each in medians.items()},
                "gpupack_minus_kubectl_seconds": round(medians["gpupack"] - medians["kubectl"], 3),
                "seconds": {
                    way: [round(each, 3) for each in seconds] for way, seconds in found.items()
                },
            }
        )
    )


if __name__ == "__main__":
    main()
