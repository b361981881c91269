# SPDX-License-Identifier: Apache-2.0
"""How rivals are timed."""

from functools import partial

import torch

from gpupack_workloads import timing
from gpupack_workloads.timing import LatestResult, seconds_in_turns, seconds_per_call

CPU = torch.device("cpu")


def test_rivals_take_turns_that_warm_up_and_every_other_round_goes_backwards():
    calls: list[str] = []
    works = {name: partial(calls.append, name) for name in ("ours", "theirs")}
    seconds = seconds_in_turns(works, device=CPU, repeats=2, rounds=3, warm_up=1)
    assert "".join(name[0] for name in calls) == "ooottt" + "tttooo" + "ooottt"
    assert set(seconds) == {"ours", "theirs"}


def test_work_that_leaves_its_result_alone_is_seen_once_that_was_spoiled():
    results = iter([torch.ones(3), torch.zeros(3)])
    work = LatestResult(lambda: next(results))
    work.spoil()
    assert work.result.isnan().all()
    work()
    assert not work.result.any()


def test_the_median_forgets_a_round_in_which_something_else_happened(monkeypatch):
    rounds = iter([3.0, 90.0, 1.0])
    monkeypatch.setattr("gpupack_workloads.timing.seconds_per_call", lambda *_, **__: next(rounds))
    assert seconds_in_turns({"ours": print}, device=CPU, repeats=1, rounds=3) == {"ours": 3.0}


def test_a_gpu_waits_between_the_warm_up_and_what_is_timed(monkeypatch):
    done: list[str] = []
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: done.append(f"{cycles} cycles"))
    monkeypatch.setattr(
        timing, "_gpu_seconds", lambda work, repeats: [work() for _ in range(repeats)] and 6.0
    )
    work, gpu = partial(done.append, "work"), torch.device("cuda")
    assert seconds_per_call(work, device=gpu, repeats=2, warm_up=1, head_start_ms=3) == 3.0
    assert done == ["work", "6000000 cycles", "work", "work"]
