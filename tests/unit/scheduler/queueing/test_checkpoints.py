# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of running GPUJobs and standalone pods, from their annotations."""

import datetime as dt

import msgspec
import pytest
from extender_builders import job, pod, whole

from gpupack_crds import names
from gpupack_crds.devices import encode_devices
from gpupack_placement import NodeName
from gpupack_scheduler.ledger.placed_job import PlacedJob


def moment(seconds):
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()


def checkpoint(world, name):
    world.decide()
    running = {each.job.name: each for each in world.owner.queue.state.running}
    return running[name].checkpointed


def shows(world, text):
    """Show the running GPUJob `train` with this annotation."""
    placed = [(NodeName("a"), (0,))]
    shown = msgspec.to_builtins(job("train", attempt=1, phase="Running", placed=placed))
    shown["metadata"]["annotations"] = {names.CHECKPOINTED_AT_ANNOTATION: text}
    world.ledger.jobs.upsert(msgspec.json.decode(msgspec.json.encode(shown), type=PlacedJob))


def test_the_annotation_of_a_gpujob_is_its_checkpoint(world):
    shows(world, moment(900.0))
    assert checkpoint(world, "train") == 900.0
    shows(world, moment(950.0))
    assert checkpoint(world, "train") == 950.0
    world.owner.restart()
    assert checkpoint(world, "train") == 950.0


def test_a_checkpoint_in_the_future_counts_as_now(world):
    shows(world, moment(5000.0))
    assert checkpoint(world, "train") == world.now


@pytest.mark.parametrize("text", ["", "yesterday", "9" * 100_000])
def test_an_annotation_that_is_no_time_is_ignored(world, text):
    shows(world, text)
    assert checkpoint(world, "train") is None


def test_the_annotation_of_a_standalone_pod_is_its_checkpoint(world):
    held = whole("a", 0)
    annotations = {
        names.DEVICES_ANNOTATION: encode_devices(held),
        names.CHECKPOINTED_AT_ANNOTATION: moment(900.0),
    }
    world.ledger.pods.upsert(pod("notebook", on="a", annotations=annotations))
    assert checkpoint(world, "pod notebook") == 900.0
