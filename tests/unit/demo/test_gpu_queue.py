# SPDX-License-Identifier: Apache-2.0
import gpu_queue
import pytest
from gpu_jobs import Broken

GPU = {"uuid": "GPU-a", "model": "NVIDIA H200"}
RESULT = {"verified": True, "headline": "1", "metrics": {"device": "NVIDIA H200"}}


class Bench:
    """A cluster with a running attention job and a gang in the given state."""

    def __init__(self, *, placement=(), spans=(("10:05", "10:09"),)):
        self.gang = {"phase": "Pending", "message": "waits", "placement": list(placement)}
        self.spans = list(spans)

    def apply(self, *_):
        pass

    def until(self, holds, *, what):
        assert holds(), what

    def job(self, name):
        status = {"phase": "Running"} if name == "attention" else self.gang
        return {"metadata": {"name": name}, "status": status}

    def finished(self, name):
        return [{"metadata": {"name": name}, "status": {"results": [RESULT]}}]

    def span_of(self, _):
        return ("10:00", "10:04")

    def spans_of(self, _):
        return self.spans


def test_the_result_of_a_gang_that_waited_has_the_reason():
    first, waiting, gang = gpu_queue.check_gang(Bench(), [GPU])
    assert waiting["figures"] == {"message": "waits"}
    assert (first["headline"], gang["headline"]) == ("1", "1")


def test_a_gang_that_holds_gpus_while_it_waits_fails_the_check():
    placed = {"node": "a", "gpus": ["GPU-a"]}
    with pytest.raises(Broken, match="runs while another job holds a GPU"):
        list(gpu_queue.check_gang(Bench(placement=[placed]), [GPU]))


def test_a_worker_that_starts_before_the_gpu_is_free_fails_the_check():
    early = Bench(spans=[("10:05", "10:09"), ("10:03", "10:09")])
    with pytest.raises(Broken, match="started at 10:03, before attention ended: 10:04"):
        list(gpu_queue.check_gang(early, [GPU]))
