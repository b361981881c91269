# SPDX-License-Identifier: Apache-2.0
import os
import socket
import time

import pytest

from gpupack_agent.mps.folder import MAX_FAULTS, Fault, MpsFolder

UUID = "GPU-5a"


@pytest.fixture
def mps(folder):
    return MpsFolder(folder)


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


def listening(mps):
    mps.pipe(UUID).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(mps.control(UUID)))


def test_a_node_is_served_while_its_supervisor_gives_signs_of_life(mps, folder):
    assert not mps.is_served()
    mps.write_sign_of_life()
    assert mps.is_served()
    age(folder / "alive", 60)
    assert not mps.is_served()


def test_a_supervisor_that_ends_removes_its_sign_of_life(mps):
    mps.write_sign_of_life()
    mps.remove_sign_of_life()
    assert not mps.is_served()


def test_a_gpu_is_ready_when_programs_find_its_daemon(mps):
    mps.write_sign_of_life()
    assert not mps.is_ready(UUID)
    listening(mps)
    assert mps.is_ready(UUID)


def test_a_request_for_a_daemon_outlives_its_need_by_a_moment(mps, folder):
    mps.request(UUID)
    mps.retain(set())
    assert mps.requested() == {UUID}
    age(folder / "wanted" / UUID, 60)
    mps.retain({UUID})
    assert mps.requested() == {UUID}
    mps.retain(set())
    assert mps.requested() == set()


@pytest.mark.parametrize("name", ["../../etc", "", "a" * 65])
def test_nothing_but_a_uuid_names_a_folder(mps, name):
    with pytest.raises(ValueError, match="is no GPU's UUID"):
        mps.request(name)


def test_the_last_faults_of_a_gpu_are_kept(mps):
    mps.pipe(UUID).mkdir(parents=True)
    for number in range(MAX_FAULTS + 3):
        mps.record(UUID, Fault(float(number), (number,)))
    kept = mps.faults(UUID)
    assert (len(kept), kept[-1]) == (MAX_FAULTS, Fault(34.0, (34,)))


def test_faults_that_cannot_be_read_are_none(mps):
    assert mps.faults(UUID) == ()
    mps.pipe(UUID).mkdir(parents=True)
    (mps.pipe(UUID) / "faults").write_text("{")
    assert mps.faults(UUID) == ()
