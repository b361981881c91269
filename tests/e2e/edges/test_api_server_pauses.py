# SPDX-License-Identifier: Apache-2.0
"""The API server pauses for a minute: every watch is stale, no write is answered."""

import time

import pytest
from pausing import host_daemon_paused

from gpupack_devcluster.driver import HostComponent
from gpupack_devcluster.settings import HOST

PAUSE_SECONDS = 60
WAITING = 10


@pytest.fixture
def host_daemons(whole, cluster):
    """Restart the cluster's own scheduler, which loses its Lease in the pause and ends."""
    yield
    for component in (HostComponent.CONTROLLER_MANAGER, HostComponent.SCHEDULER):
        cluster.start(HOST, component)


def test_after_a_minute_without_the_api_server_all_jobs_succeed_and_no_gpu_is_assigned_twice(
    kube, judged, verdict, host_daemons, tell
):
    """Four of eight jobs that fill the cluster end during the pause, four after it; others wait."""
    ending = [judged.job(f"ending-{i}", gpus=2, seconds=20) for i in range(4)]
    staying = [judged.job(f"staying-{i}", gpus=2, seconds=75) for i in range(4)]
    waiting = [judged.job(f"waiting-{i}", gpus=2, seconds=1) for i in range(WAITING)]
    storm = [*ending, *staying, *waiting]
    kube.submit(*ending, *staying)
    for job in (*ending, *staying):
        kube.wait_phase(job["metadata"]["name"], "Running", seconds=60)
    kube.submit(*waiting)
    # Some of the new jobs are being started when the pause begins.
    with host_daemon_paused(HostComponent.API_SERVER):
        time.sleep(PAUSE_SECONDS)  # the length of the pause is what is tested
    began = time.monotonic()
    jobs = kube.wait_finished([job["metadata"]["name"] for job in storm], seconds=240)
    tell(f"all ended {time.monotonic() - began:.0f} s after the pause; repeated={verdict(jobs)}")
    ran_through = {name: job for name, job in jobs.items() if not name.startswith("waiting")}
    assert {len(job["status"]["attempts"]) for job in ran_through.values()} == {1}
