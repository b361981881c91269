# SPDX-License-Identifier: Apache-2.0
"""The supervisor, with a program that does as NVIDIA's daemon: it makes its socket and waits."""

import asyncio
import os
import socket
import sys
import time

import pytest

from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.mps import supervisor as supervisors
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.mps.supervisor import CONTROL, Supervisor, link_libraries

UUID = "GPU-5a"
DAEMON = f"""\
#!{sys.executable} -S
import os, socket, sys
path = os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control"
if "-f" not in sys.argv:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.send(sys.stdin.buffer.read())
    sys.exit()
assert "-multiuser-server" in sys.argv and os.environ["CUDA_VISIBLE_DEVICES"] == "{UUID}"
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
print("[Server 1] Client {{PID: 7, Context: 1}} encountered a fatal GPU error.", flush=True)
print("[Server 1] The following client process have a sticky error set:", flush=True)
while listener.accept()[0].recv(99) != b"quit\\n":
    pass
"""


@pytest.fixture
def mps(folder):
    return MpsFolder(folder)


@pytest.fixture
async def supervisor(mps, tmp_path, monkeypatch):
    path = tmp_path / "nvidia-cuda-mps-control"
    path.write_text(DAEMON)
    path.chmod(0o755)
    monkeypatch.setattr(supervisors, "ROUND_SECONDS", 0.02)
    serving = asyncio.create_task(Supervisor(mps, path, None).run())
    yield serving
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def until(truth):
    async with asyncio.timeout(30):
        while not truth():
            await asyncio.sleep(0.02)


def unwanted(mps, folder):
    then = time.time() - 100
    os.utime(folder / "wanted" / UUID, (then, then))
    mps.retain(set())


@pytest.mark.usefixtures("supervisor")
async def test_a_daemon_starts_with_the_first_request_and_stops_after_the_last(mps, folder):
    await until(mps.is_served)
    assert not mps.is_ready(UUID)
    mps.request(UUID)
    await until(lambda: mps.is_ready(UUID))
    unwanted(mps, folder)
    await until(lambda: not mps.pipe(UUID).exists())


@pytest.mark.usefixtures("supervisor")
async def test_faults_in_a_daemons_log_are_recorded(mps):
    mps.request(UUID)
    await until(lambda: mps.faults(UUID))
    assert mps.faults(UUID)[0].clients == (7,)


async def test_the_daemons_end_with_the_supervisor(mps, supervisor):
    mps.request(UUID)
    await until(lambda: mps.is_ready(UUID))
    supervisor.cancel()
    await asyncio.gather(supervisor, return_exceptions=True)
    assert not mps.is_served()
    assert not mps.pipe(UUID).exists()


async def test_a_daemon_that_exits_is_restarted_after_a_delay(mps, tmp_path, caplog):
    path = tmp_path / "nvidia-cuda-mps-control"
    path.write_text("#!/bin/sh\nexit 3\n")
    path.chmod(0o755)
    made = Supervisor(mps, path, None)
    mps.request(UUID)
    await made.round()
    await made._daemons[UUID].process.wait()
    await made.round()
    assert f"GPU {UUID}: its daemon ended with 3" in caplog.text
    assert made._daemons == {}


async def test_the_daemons_end_where_the_host_has_no_program_any_more(mps, supervisor, tmp_path):
    mps.request(UUID)
    await until(lambda: mps.is_ready(UUID))
    (tmp_path / "nvidia-cuda-mps-control").unlink()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        client.connect(str(mps.control(UUID)))
        supervisor.cancel()
        await asyncio.gather(supervisor, return_exceptions=True)
        assert client.recv(1) == b"", "the daemon is gone"
    assert not mps.pipe(UUID).exists()


async def test_a_program_that_is_briefly_missing_ends_no_daemon(mps, supervisor, tmp_path):
    mps.request(UUID)
    await until(lambda: mps.is_ready(UUID))
    (tmp_path / "nvidia-cuda-mps-control").rename(tmp_path / "old")
    mps.request("GPU-other")
    await asyncio.sleep(0.2)
    assert not supervisor.done()
    assert mps.is_ready(UUID)


@pytest.mark.usefixtures("supervisor")
async def test_a_daemon_that_is_ending_is_not_ready(mps, folder, monkeypatch):
    quitting = asyncio.Event()
    stop = Supervisor._stop

    async def slowly(self, uuid):
        quitting.set()
        await asyncio.sleep(0.3)
        await stop(self, uuid)

    monkeypatch.setattr(Supervisor, "_stop", slowly)
    mps.request(UUID)
    await until(lambda: mps.is_ready(UUID))
    unwanted(mps, folder)
    await quitting.wait()
    mps.request(UUID)
    assert mps.control(UUID).is_socket()
    assert not mps.is_ready(UUID)
    await until(lambda: mps.is_ready(UUID))


async def test_a_daemon_requested_just_before_its_end_continues(mps, tmp_path, folder):
    path = tmp_path / "nvidia-cuda-mps-control"
    path.write_text(DAEMON)
    path.chmod(0o755)
    made = Supervisor(mps, path, None)
    mps.write_sign_of_life()
    mps.request(UUID)
    await made.round()
    await until(lambda: mps.is_ready(UUID))
    daemon = made._daemons[UUID].process.pid
    unwanted(mps, folder)
    looked, mps.requested = mps.requested, lambda: {UUID}
    await made._reconcile(UUID, requested=False)
    assert (made._daemons[UUID].process.pid, mps.is_ready(UUID)) == (daemon, True)
    mps.requested = looked
    await made.round()
    assert made._daemons == {}


async def test_daemons_of_a_killed_supervisor_are_not_ready(mps, tmp_path):
    mps.pipe(UUID).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(mps.control(UUID)))
        mps.write_sign_of_life()
        assert mps.is_ready(UUID)
        serving = asyncio.create_task(Supervisor(mps, tmp_path / "none", None).run())
        await until(lambda: not mps.is_ready(UUID))
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def test_a_line_that_is_too_long_does_not_end_the_reading(mps, tmp_path):
    path = tmp_path / "nvidia-cuda-mps-control"
    first, *others = DAEMON.partition("print(")
    path.write_text("".join([first, "print('x' * 200_000, flush=True)\n", *others]))
    path.chmod(0o755)
    made = Supervisor(mps, path, None)
    mps.request(UUID)
    await made.round()
    await until(lambda: mps.faults(UUID))
    await made._stop(UUID)


async def test_a_host_without_mps_offers_no_limited_shares_until_it_has_it(
    mps, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(supervisors, "SEARCH_SECONDS", 0.05)
    serving = asyncio.create_task(supervisors.serve(mps, DriverSearch(tmp_path), tmp_path / "lib"))
    await until(lambda: "this host has no limited shares" in caplog.text)
    assert not mps.is_served()
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/nvidia-cuda-mps-control").touch()
    await until(mps.is_served)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_the_hosts_program_is_found_and_its_driver_libraries_and_no_others(tmp_path):
    search = DriverSearch(tmp_path)
    assert search.find().program(CONTROL) is None
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/nvidia-cuda-mps-control").touch()
    assert search.find().program(CONTROL) == tmp_path / "usr/bin/nvidia-cuda-mps-control"
    libraries = tmp_path / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in ("libcuda.so.1", "libc.so.6"):
        (libraries / name).touch()
    made = link_libraries(search, tmp_path / "lib")
    assert [path.name for path in made.iterdir()] == ["libcuda.so.1"]
