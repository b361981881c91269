# SPDX-License-Identifier: Apache-2.0
"""Runs the demo: four GPUJobs on the running cluster, from `kubectl apply` to their results.

It prints every command as a user would type it, with its real output, and exits with an error if a
job does not behave as expected.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

import tenacity

ROOT = pathlib.Path(__file__).parents[1]
BIN = ROOT / ".dev" / "bin"
KUBECONFIG = ROOT / ".dev" / "kubeconfig"
JOBS = ("matmul", "allreduce")
WAITING_JOB = "too-big"
WAIT_SECONDS = 120


def main() -> int:
    """Run the demo; return the exit code."""
    began = time.monotonic()
    kubectl("delete", "gpujobs", *JOBS, WAITING_JOB, "--ignore-not-found", "--timeout=60s")
    say("The GPUs of this cluster, as the agents report them")
    show("get", "gpunodes")
    say("Two jobs that fit, and one that requests more GPUs than there are")
    for name in (*JOBS, WAITING_JOB):
        show("apply", "-f", f"examples/{name}.yaml")
    say("An invalid manifest is refused by apply, with the field and the fix")
    refused = show("apply", "-f", "examples/invalid.yaml")
    say("Results of the jobs")
    phases = wait_for_jobs()
    show("get", "gj", "-o", "wide")
    say("Why the large job waits")
    show("get", "gj", WAITING_JOB, "-o", "jsonpath={.status.message}{'\\n'}")
    promised = {"matmul": "Succeeded", "allreduce": "Succeeded", WAITING_JOB: "Pending"}
    if phases != promised or refused == 0:
        print(f"\nThe demo failed: {phases}, expected {promised} and a refused manifest.")
        print("See .dev/log/ and `kubectl -n gpupack-system get pods`.")
        return 1
    say(f"Done in {time.monotonic() - began:.0f} s. The cluster stays up.")
    print(f"  continue:  export KUBECONFIG={KUBECONFIG} PATH={BIN}:$PATH")
    print("             kubectl describe gj allreduce; kubectl explain gpujob.spec")
    print("  clean up:  make cluster-down   (or `make clean`, which removes images and caches too)")
    return 0


def wait_for_jobs() -> dict[str, str]:
    """Wait until the fitting jobs have ended and the other is pending; return phases by name."""
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(WAIT_SECONDS),
        wait=tenacity.wait_fixed(0.5),
        retry=tenacity.retry_if_result(lambda seen: not settled(seen)),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else {},
    )
    answer: dict[str, str] = retrying(phases_of_jobs)
    return answer


def settled(phases: dict[str, str]) -> bool:
    """Return whether all jobs have reached their final state."""
    ended = all(phases.get(name) in {"Succeeded", "Failed"} for name in JOBS)
    return ended and bool(phases.get(WAITING_JOB))


def phases_of_jobs() -> dict[str, str]:
    """Return the phases of the demo's GPUJobs by name."""
    got = kubectl("get", "gpujobs", *JOBS, WAITING_JOB, "-o", "json")
    items = json.loads(got.stdout)["items"] if got.returncode == 0 else []
    return {job["metadata"]["name"]: job.get("status", {}).get("phase", "") for job in items}


def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl and capture its output."""
    environ = os.environ | {"KUBECONFIG": str(KUBECONFIG)}
    return subprocess.run(
        [str(BIN / "kubectl"), *arguments],
        cwd=ROOT,
        env=environ,
        text=True,
        capture_output=True,
        check=False,
    )


def show(*arguments: str) -> int:
    """Run kubectl and print the command and its output; return its exit code."""
    print(f"$ kubectl {' '.join(arguments)}")
    done = kubectl(*arguments)
    print((done.stdout + done.stderr).rstrip(), flush=True)
    return done.returncode


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
