# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_placement import MiB, MilliGpu, Request, Share
from gpupack_simulator.errors import InvalidJob
from gpupack_simulator.job import Job, JobId, Size


@pytest.mark.parametrize(
    ("request_", "workers", "size"),
    [
        (Request(gpus=0), 4, Size.NONE),
        (Request(share=Share(MilliGpu(500), MiB(0))), 1, Size.SHARE),
        (Request(share=Share(MilliGpu(500), MiB(0))), 2, Size.ONE),
        (Request(gpus=1), 1, Size.ONE),
        (Request(gpus=3), 1, Size.FEW),
        (Request(gpus=2), 2, Size.HALF),
        (Request(gpus=8), 1, Size.NODE),
        (Request(gpus=8), 4, Size.NODE),
    ],
)
def test_a_job_is_classed_by_the_gpus_of_all_its_workers(request_, workers, size):
    assert Job(JobId("a"), 0, request_, workers).size is size


def test_a_job_that_ends_before_it_starts_is_refused():
    with pytest.raises(InvalidJob, match="job a: duration 0 is not positive"):
        Job(JobId("a"), 0, Request(gpus=1), duration=0)


def test_a_job_that_arrives_before_time_began_is_refused():
    with pytest.raises(InvalidJob, match="arrival -1 is not 0 or later"):
        Job(JobId("a"), -1, Request(gpus=1))
