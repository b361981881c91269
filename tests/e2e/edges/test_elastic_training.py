# SPDX-License-Identifier: Apache-2.0
"""A training that shrinks from 4 workers to 2 and grows back, compared with two that keep their 4.

Losses are stored next to the checkpoints, in FOLDER/attempt-N/losses.jsonl. The course of a
training is what its starts computed; steps of a later start replace those of an earlier one. The
noise is measured: it is the distance between two trainings that are never resized and differ only
in their seed.
"""

import copy
import itertools
import json
import statistics
import time

import pytest
import yaml
from harness import ROOT, wait_for
from volumes import shared_folder
from workload_jobs import logs

NAME = "elastic-transformer"
JOB, CLAIM = yaml.safe_load_all((ROOT / "examples" / f"{NAME}.yaml").read_text())
STEPS, EVERY = 600, 25
SIZE = ["--batch-size=48", f"--checkpoint-every={EVERY}", f"--steps={STEPS}"]
"""Enough steps, of such a size, that each phase lasts longer than a resize."""
RUN_SECONDS = 600
RESIZE_SECONDS = 150
"""growAfterSeconds of this cluster, plus the start of all workers' processes on two cores."""


@pytest.fixture
def volume(kube):
    with shared_folder(kube, NAME) as folder:
        yield folder


def training(name, *, seed, rigid):
    """The example with a size that takes a while on two cores, in a folder of its own."""
    job = copy.deepcopy(JOB)
    job["metadata"]["name"] = name
    of_its_own = ("--steps", "--checkpoint", "--batch-size")
    kept = [arg for arg in job["spec"]["workload"]["args"] if not arg.startswith(of_its_own)]
    added = [f"--checkpoint=/checkpoints/{name}", f"--seed={seed}"]
    job["spec"]["workload"]["args"] = [*kept, *added, *SIZE]
    if rigid:
        del job["spec"]["minWorkers"]
    return job


def starts(folder):
    """Return step, loss and ranks of each line, for each start in order."""
    files = sorted(folder.glob("attempt-*/losses.jsonl"), key=lambda path: number(path.parent))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in files]


def number(attempt):
    return int(attempt.name.removeprefix("attempt-"))


def course(folder):
    """Return losses by step."""
    return {line["step"]: line["loss"] for of in starts(folder) for line in of}


def widths(folder):
    """Return the numbers of ranks that trained, in order."""
    ranks = [line["ranks"] for of in starts(folder) for line in of]
    return [rank for rank, _ in itertools.groupby(ranks)]


def wait_steps(folder, count, *, ranks):
    """Wait until the last start has saved so many steps with so many ranks."""

    def look():
        last = next((of for of in reversed(starts(folder)) if of), [])
        return len(last) >= count and last[-1]["ranks"] == ranks

    began = time.monotonic()
    wait_for(look, seconds=RESIZE_SECONDS, what=f"{count} steps by {ranks} ranks", every_seconds=1)
    return time.monotonic() - began


def succeeds(kube, name):
    job = kube.wait_phase(name, "Succeeded", "Failed", seconds=RUN_SECONDS)
    assert job["status"]["phase"] == "Succeeded", [json.dumps(job["status"]), *logs(kube, name)]
    return job


def apart(one, other):
    """Return the largest and the mean difference of two courses."""
    differences = [abs(one[step] - other[step]) for step in range(STEPS)]
    return max(differences), statistics.fmean(differences)


@pytest.mark.timeout(4 * RUN_SECONDS)
def test_from_4_workers_to_2_and_back_no_saved_step_is_lost_and_the_losses_are_as_without(
    kube, judged, volume, tell
):
    kube.submit(
        CLAIM,
        {
            "apiVersion": "gpupack.dev/v1beta1",
            "kind": "GPUQuota",
            "metadata": {"name": "default"},
            "spec": {"gpus": [{"model": "*", "nominal": 4, "borrowingLimit": 0}]},
        },
    )
    for seed in (0, 1):
        kube.submit(training(f"rigid-{seed}", seed=seed, rigid=True))
        succeeds(kube, f"rigid-{seed}")

    kube.submit(training("elastic", seed=0, rigid=False))
    folder = volume / "elastic"
    wait_steps(folder, 2 * EVERY, ranks=4)
    kube.submit(judged.job("guest", workers=2, seconds=RUN_SECONDS))
    shrunk = wait_steps(folder, EVERY, ranks=2)
    kube.wait_phase("guest", "Running")
    kube.delete("gpujob", "guest")
    grown = wait_steps(folder, EVERY, ranks=4)
    job = succeeds(kube, "elastic")

    found, whole, other = course(folder), course(volume / "rigid-0"), course(volume / "rigid-1")
    assert sorted(found) == sorted(whole) == list(range(STEPS))
    computed = [line["step"] for of in starts(folder) for line in of]
    again = len(computed) - len(set(computed))
    worst, mean = apart(found, whole)
    noise_worst, noise_mean = apart(other, whole)
    tell(
        f"ranks {widths(folder)} in {len(starts(folder))} starts; by 2 ranks after {shrunk:.0f} s, "
        f"by 4 again after {grown:.0f} s (growAfterSeconds 20); {again} steps computed again; "
        f"losses differ by {worst:.2g} at most, {mean:.2g} on average; those of another seed by "
        f"{noise_worst:.2g} and {noise_mean:.2g}; last losses {found[STEPS - 1]:.4f} and "
        f"{whole[STEPS - 1]:.4f}"
    )
    assert [each for each in widths(folder) if each != 3] == [4, 2, 4]
    assert again <= 2 * EVERY
    assert worst <= noise_worst
    assert mean <= noise_mean
    assert [each.get("outcome") for each in job["status"]["attempts"]] == ["Succeeded"]
    assert all(result["workload"] == "transformer" for result in job["status"]["results"])
