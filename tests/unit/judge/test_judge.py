# SPDX-License-Identifier: Apache-2.0
"""The judge of the cluster suite refuses what it is there to refuse."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

JUDGE = pathlib.Path(__file__).parents[2] / "e2e" / "judge" / "judge.py"
GPU = "GPU-1"
MEMORY_MIB = 1000
SECONDS = 20
NO_DEVICES, REFUSED, OTHER = 41, 42, 43


@pytest.fixture
def judges(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Judges(tmp_path, stack)


class Judges:
    """Starts judges that share one folder of locks."""

    def __init__(self, folder, stack):
        self._folder = folder
        self._stack = stack

    def start(
        self, seconds="60", *, devices=GPU, share=None, given=None, linger="0", may=None, theirs=""
    ):
        percent, memory = given or share or (100, MEMORY_MIB)
        environment = os.environ | {
            "JUDGE_LOCKS": str(self._folder),
            "JUDGE_TERMINATION_LOG": str(self._folder / f"said-{time.monotonic_ns()}"),
            "JUDGE_SHARE": f"{share[0]}/{share[1]}" if share else "",
            "JUDGE_GPU_MEMORY_MIB": str(MEMORY_MIB),
            "JUDGE_LINGER_SECONDS": linger,
            "JUDGE_IDS": "" if may is None else json.dumps(may),
            "STAND_IN_DEVICES": theirs,
            "GPUPACK_DEVICES": devices,
            "GPUPACK_DEVICE_PERCENT": str(percent),
            "GPUPACK_DEVICE_MEMORY_MIB": str(memory),
        }
        command = [sys.executable, "-S", JUDGE, seconds]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        self._stack.callback(process.wait, SECONDS)
        self._stack.callback(process.kill)
        return process

    def verdict(self, **kwargs):
        """Exit status of a judge that holds for no time."""
        return self.start("0", **kwargs).wait(SECONDS)

    def hold(self, seconds="60", **kwargs):
        """A judge that holds what it was given until the test ends."""
        lock = "shares-*/*" if kwargs.get("share") else "[GM][PI][UG]-?"
        before = self._held(lock)
        process = self.start(seconds, **kwargs)
        deadline = time.monotonic() + SECONDS
        while self._held(lock) == before:
            assert process.poll() is None, f"ended with {process.returncode}"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process

    def _held(self, pattern):
        """Who holds locks on these files of the folder, as the kernel lists it."""
        inodes = {path.stat().st_ino for path in self._folder.glob(pattern)}
        locks = (line.split() for line in pathlib.Path("/proc/locks").read_text().splitlines())
        return {line[4] for line in locks if int(line[5].rpartition(":")[2]) in inodes}

    def refusals(self):
        return {
            path.name.split("-")[0]: path.read_text() for path in self._folder.glob("refused-*")
        }

    def peak(self, gpu=GPU):
        return json.loads((self._folder / f"peak-{gpu}").read_text())


def test_a_second_whole_holder_is_refused_and_leaves_a_mark(judges):
    judges.hold()
    assert judges.verdict() == REFUSED
    assert judges.refusals() == {"refused": "held by another"}


def test_a_whole_gpu_is_refused_while_a_share_is_held(judges):
    judges.hold(share=(10, 10))
    assert judges.verdict() == REFUSED


def test_a_share_is_refused_while_the_whole_gpu_is_held(judges):
    judges.hold()
    assert judges.verdict(share=(10, 10)) == REFUSED
    assert judges.refusals() == {"refused": "held whole by another"}


@pytest.mark.parametrize(
    ("held", "wish", "status"),
    [
        ((60, 100), (40, 100), 0),
        ((60, 100), (41, 100), REFUSED),
        ((10, 600), (10, 400), 0),
        ((10, 600), (10, 401), REFUSED),
    ],
    ids=["100 %", "101 %", "all memory", "1 MiB too much"],
)
def test_shares_may_fill_a_gpu_and_not_overfill_it(judges, held, wish, status):
    judges.hold(share=held)
    assert judges.verdict(share=wish) == status
    assert bool(judges.refusals()) == bool(status)


def test_all_live_shares_count(judges):
    judges.hold(share=(40, 10))
    judges.hold(share=(40, 10))
    assert judges.verdict(share=(20, 10)) == 0
    assert judges.verdict(share=(21, 10)) == REFUSED


def test_gpus_of_a_killed_process_are_free(judges):
    whole = judges.hold()
    whole.kill()
    whole.wait(SECONDS)
    share = judges.hold(share=(90, 10))
    share.kill()
    share.wait(SECONDS)
    assert judges.verdict(share=(90, 10)) == 0
    assert judges.verdict() == 0
    assert judges.refusals() == {}


def test_other_gpus_do_not_matter(judges):
    judges.hold(devices="GPU-2")
    judges.hold(devices="GPU-3", share=(90, 900))
    assert judges.verdict() == 0
    assert judges.verdict(share=(90, 900)) == 0


def test_one_held_gpu_of_several_is_refused(judges):
    judges.hold(devices="GPU-2")
    assert judges.verdict(devices="GPU-1,GPU-2") == REFUSED


@pytest.mark.parametrize(
    ("share", "given"),
    [(None, (50, 1000)), ((50, 10), (60, 10)), ((50, 10), (50, 11))],
    ids=["a share for a whole GPU", "other percent", "other memory"],
)
def test_a_share_other_than_requested_is_refused(judges, share, given):
    assert judges.verdict(share=share, given=given) == OTHER
    assert "asked for" in judges.refusals()["refused"]


def test_a_share_of_two_gpus_is_refused(judges):
    assert judges.verdict(share=(50, 10), devices="GPU-1,GPU-2") == OTHER


def test_no_devices_has_its_own_exit_status(judges):
    assert judges.verdict(devices="") == NO_DEVICES


def test_the_peak_tells_how_much_overlapped(judges):
    judges.hold(share=(40, 10))
    judges.verdict(share=(30, 20))
    judges.verdict(share=(20, 40))
    assert judges.peak() == {"percent": 70, "memoryMiB": 50, "shares": 2}


def test_shares_that_follow_each_other_do_not_overlap(judges):
    judges.verdict(share=(40, 10))
    judges.verdict(share=(30, 20))
    assert judges.peak() == {"percent": 40, "memoryMiB": 20, "shares": 1}


def test_a_judge_that_waits_for_its_end_holds_on_while_it_lingers(judges):
    server = judges.hold("term", linger="60")
    server.terminate()
    assert judges.verdict() == REFUSED
    assert server.poll() is None


def test_a_judge_that_waits_for_its_end_ends_well(judges):
    server = judges.hold("term")
    server.terminate()
    assert server.wait(SECONDS) == 0


SLICES = {"MIG-1": GPU, "MIG-2": GPU}


def test_slices_of_a_gpu_live_side_by_side_and_each_has_one_holder(judges):
    judges.hold(devices="MIG-1", may=SLICES)
    assert judges.verdict(devices="MIG-2", may=SLICES) == 0
    assert judges.verdict(devices="MIG-1", may=SLICES) == REFUSED


@pytest.mark.parametrize("share", [None, (10, 10)], ids=["whole", "share"])
def test_a_gpu_is_refused_while_a_slice_of_it_is_held(judges, share):
    judges.hold(devices="MIG-1", may=SLICES)
    assert judges.verdict(share=share) == REFUSED
    assert "a slice of it" in "".join(judges.refusals().values())


@pytest.mark.parametrize("share", [None, (10, 10)], ids=["whole", "share"])
def test_a_slice_is_refused_while_its_gpu_is_held(judges, share):
    judges.hold(share=share)
    assert judges.verdict(devices="MIG-1", may=SLICES) == REFUSED
    assert "its GPU is held" in "".join(judges.refusals().values())


def test_a_device_of_another_profile_or_vendor_is_refused(judges):
    assert judges.verdict(devices="MIG-3", may=SLICES) == OTHER
    assert judges.verdict(devices="0000:05:00.0", may={GPU: ""}) == OTHER
    assert judges.verdict(devices=GPU, may={GPU: ""}) == 0


def test_an_extra_gpu_of_another_plugin_is_refused(judges):
    assert judges.verdict(devices=GPU, theirs="0000:05:00.0", may={GPU: ""}) == OTHER
    assert judges.verdict(devices="", theirs="0000:05:00.0", may={GPU: ""}) == OTHER
    assert judges.verdict(devices="", theirs="0000:05:00.0", may={"0000:05:00.0": ""}) == 0


def test_every_device_is_refused_if_the_kind_does_not_exist(judges):
    assert judges.verdict(devices=GPU, may={}) == OTHER
