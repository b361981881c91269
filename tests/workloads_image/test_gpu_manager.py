# SPDX-License-Identifier: Apache-2.0
"""The GPU manager: outcomes of tasks, of other tasks, and of the processes."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path

import gpu_manager_tasks as tasks
import numpy as np
import pytest
import torch

from gpupack_workloads.errors import BadArgument, OutOfMemory, WrongResult
from gpupack_workloads.gpu_manager import builtin, run, session
from gpupack_workloads.gpu_manager.manager import GpuManager, find_gpus
from gpupack_workloads.gpu_manager.options import GpuManagerOptions
from gpupack_workloads.gpu_manager.supervisor import Gpu, Supervisor
from gpupack_workloads.gpu_manager.task_queue import (
    GpuLost,
    ManagerClosed,
    Task,
    TaskFailed,
    TaskQueue,
    TaskTimedOut,
)
from gpupack_workloads.gpu_manager.worker import (
    ANSWER,
    DONE,
    NO_TASK,
    READY,
    TORCH_BYTES,
    Arena,
    frames,
)
from gpupack_workloads.gpu_manager.worker_process import Ring
from gpupack_workloads.reference.agreement import Agreement

POOL_BYTES = 2**20
RESULT_BYTES = 2**18
SECONDS = 300
"""For anything at all: a worker's start takes seconds, more where others start, too."""
SHORT = 0.3

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="GPUs are not simulated")
one_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@contextlib.contextmanager
def managing(gpus=None, pool_bytes=POOL_BYTES):
    made = GpuManager(gpus or find_gpus(), pool_bytes=pool_bytes, result_bytes=RESULT_BYTES)
    try:
        yield made
    finally:
        made.close(abort=True)


@pytest.fixture(scope="module")
def manager():
    """One for most tests: whatever happens to a worker, the manager goes on."""
    with managing() as made:
        made.wait_until_ready()
        yield made


@pytest.fixture
def other():
    """The index of another GPU than 0, or 0 where there is one only."""
    return find_gpus()[-1].index


def result(future):
    return future.result(timeout=SECONDS)


def error(future):
    return future.exception(timeout=SECONDS)


def test_what_a_function_returns_comes_back_in_the_order_in_which_it_was_asked_for(manager):
    futures = [manager.submit(tasks.double, number) for number in range(2000)]
    assert [result(future) for future in futures] == [2 * number for number in range(2000)]


def test_tensors_come_back_wherever_they_are_in_what_is_returned(manager):
    found = result(manager.submit(tasks.tensors, 1000, result_bytes=2 * 4096))
    assert found["ones"].device.type == "cpu"
    assert torch.equal(found["ones"], torch.ones(1000))
    assert torch.equal(found["rows"][0], torch.full((1, 1000), 2.0))
    assert (found["rows"][1], found["number"]) == ("text", 3)


def test_results_are_whole_though_their_memory_is_used_again_and_again(manager):
    size = RESULT_BYTES // 3 // 4
    vectors = [np.full(size, number, np.float32) for number in range(40)]
    quota = {"memory_bytes": POOL_BYTES // 2, "result_bytes": RESULT_BYTES // 2}
    futures = [manager.submit(builtin.vector_add, each, each, **quota) for each in vectors]
    for number, future in enumerate(futures):
        assert torch.equal(result(future), torch.full((size,), 2.0 * number))


def test_sums_and_products_are_numpys(manager, other):
    for gpu in (0, other):
        plan = session.plan_for(session.choose_device(require_gpu=False), GpuManagerOptions())
        small = session.Plan(101, 33, 8, torch.float32, 1, 1, 1, 1, 1)
        assert plan.rounds > 0
        assert session.check(manager, find_gpus()[gpu], small, seed=gpu).holds


def test_a_task_that_raises_fails_with_its_error_and_traceback_and_its_worker_stays(manager):
    before = result(manager.submit(tasks.where, gpu=0))
    failed = error(manager.submit(tasks.fail, "no such weights", gpu=0))
    assert isinstance(failed, TaskFailed)
    assert "ValueError: no such weights" in str(failed)
    assert "gpu_manager_tasks.py" in failed.trace
    assert "SystemExit: 7" in str(error(manager.submit(tasks.leave, gpu=0)))
    assert result(manager.submit(tasks.where, gpu=0)) == before


@pytest.mark.parametrize("task", [tasks.unpicklable, tasks.unreadable])
def test_what_cannot_come_back_fails_the_task_alone(manager, task):
    assert isinstance(error(manager.submit(task)), TaskFailed)
    assert result(manager.submit(tasks.double, 4)) == 8


def test_a_function_that_no_worker_can_import_is_refused_at_once(manager):
    with pytest.raises(Exception, match="pickle"):
        manager.submit(lambda context: None)


def test_a_task_that_hangs_is_ended_and_takes_no_other_along(manager):
    first = result(manager.submit(tasks.where, gpu=0))
    hanging = manager.submit(builtin.hang, gpu=0, seconds=SHORT)
    behind = [manager.submit(tasks.where, gpu=0) for _ in range(10)]
    timed_out = error(hanging)
    assert isinstance(timed_out, TaskTimedOut)
    assert "(hang) ran for more than 0.3 s on GPU 0" in str(timed_out)
    assert first not in {result(future) for future in behind}
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_a_task_that_hangs_with_pythons_lock_is_ended_as_well(manager):
    hanging = manager.submit(tasks.hang_with_the_gil, gpu=0, seconds=SHORT)
    assert isinstance(error(hanging), TaskTimedOut)
    assert result(manager.submit(tasks.double, 2, gpu=0)) == 4


def test_while_a_task_hangs_on_one_gpu_another_goes_on(manager, other):
    if other == 0:
        pytest.skip("needs two GPUs")
    hanging = manager.submit(builtin.hang, gpu=0, seconds=3)
    assert [result(manager.submit(tasks.double, n, gpu=other)) for n in range(100)][-1] == 198
    assert result(manager.submit(tasks.double, 1)) == 2
    assert not hanging.done()
    assert isinstance(error(hanging), TaskTimedOut)


def test_tasks_behind_one_that_takes_long_are_run_by_another_gpu(manager, other):
    if other == 0:
        pytest.skip("needs two GPUs")
    result(manager.submit(tasks.double, 1, gpu=other))
    long = manager.submit(tasks.rest, 3, gpu=0)
    quick = [manager.submit(tasks.tensors, 50, result_bytes=512) for _ in range(200)]
    assert {result(future)["number"] for future in quick} == {3}
    assert not long.done()
    result(long)
    assert result(manager.submit(tasks.tensors, 50, result_bytes=512, gpu=0))["ones"].sum() == 50


def test_a_task_may_take_its_time_and_others_before_it_do_not_count(manager):
    futures = [manager.submit(tasks.rest, 0.2, gpu=0, seconds=0.9) for _ in range(8)]
    assert len({result(future) for future in futures}) == 1


def test_a_task_that_ends_its_process_fails_and_is_never_run_again(manager, tmp_path):
    marked = tmp_path / "marked"
    before = manager.submit(tasks.mark, marked, gpu=0)
    dying = manager.submit(tasks.die, 9, gpu=0)
    behind = [manager.submit(tasks.mark, marked, gpu=0) for _ in range(5)]
    failed = error(dying)
    assert isinstance(failed, TaskFailed)
    assert "(die) ended its process on GPU 0" in str(failed)
    assert "with exit status 9" in str(failed)
    for future in (before, *behind):
        result(future)
    assert marked.read_text() == "x" * 6


def test_a_worker_that_is_killed_between_tasks_is_replaced(manager):
    os.kill(result(manager.submit(tasks.where, gpu=0)), signal.SIGKILL)
    assert result(manager.submit(tasks.double, 5, gpu=0)) == 10


def test_a_task_gets_its_quota_and_no_byte_more_and_the_error_says_how_much_was_free(manager):
    assert result(manager.submit(tasks.ask, 256, 700, memory_bytes=1024)) == [256, 700]
    failed = error(manager.submit(tasks.ask, 256, 700, 1, memory_bytes=1024, gpu=0))
    assert isinstance(failed, OutOfMemory)
    asked = "1 bytes are requested, and 0 are free of the task's quota of 1024 bytes"
    assert asked in str(failed)
    assert "the memory pool of" in str(failed)
    assert result(manager.submit(tasks.double, 1, gpu=0)) == 2


def test_every_task_gets_the_whole_pool(manager):
    futures = [manager.submit(tasks.addresses, gpu=0, memory_bytes=POOL_BYTES) for _ in range(9)]
    assert len({result(future) for future in futures}) == 1


def test_more_than_there_is_for_results_is_an_error_of_the_task(manager):
    failed = error(manager.submit(tasks.tensors, 1000, result_bytes=4096))
    assert isinstance(failed, OutOfMemory)
    assert "4000 bytes are requested, and 0 are free" in str(failed)
    assert "pinned host memory" in str(failed)


@pytest.mark.parametrize(
    ("wanted", "kind", "message"),
    [
        ({"memory_bytes": POOL_BYTES + 1}, OutOfMemory, f"memory pool has {POOL_BYTES}"),
        ({"result_bytes": RESULT_BYTES + 1}, OutOfMemory, f"results has {RESULT_BYTES}"),
        ({"memory_bytes": -1}, BadArgument, "a quota of -1 bytes"),
        ({"gpu": 99}, BadArgument, "there is no GPU 99: there are"),
        ({"seconds": 0}, BadArgument, "a task cannot run for 0 s"),
        ({"seconds": float("nan")}, BadArgument, "a task cannot run for nan s"),
    ],
)
def test_what_can_never_be_is_refused_at_once(manager, wanted, kind, message):
    with pytest.raises(kind, match=message):
        manager.submit(tasks.double, 1, **wanted)


def test_a_large_argument_behind_a_task_that_hangs_does_not_hold_up_its_end(manager):
    hanging = manager.submit(builtin.hang, gpu=0, seconds=SHORT)
    behind = manager.submit(tasks.double, np.ones(2**21), gpu=0)
    assert isinstance(error(hanging), TaskTimedOut)
    assert result(behind).sum() == 2**22


def test_a_manager_that_is_closed_has_finished_its_tasks_and_can_be_closed_again():
    with managing(find_gpus()[:1]) as made:
        futures = [made.submit(tasks.rest, 0.02) for _ in range(10)]
        made.close()
        (worker,) = {future.result(timeout=0) for future in futures}
        made.close()
        made.close(abort=True)
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
        with pytest.raises(ManagerClosed):
            made.submit(tasks.double, 1)


def test_an_error_in_a_with_block_cancels_what_waits_and_what_runs():
    gpu = find_gpus()[:1]
    with contextlib.suppress(KeyboardInterrupt), GpuManager(gpu, pool_bytes=1) as made:
        worker = result(made.submit(tasks.where))
        futures = [made.submit(builtin.hang) for _ in range(3)]
        raise KeyboardInterrupt
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(timeout=0)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_closing_does_not_wait_for_a_start():
    began = time.monotonic()
    with managing(find_gpus()[:1]):
        pass
    assert time.monotonic() - began < 5


def test_a_gpu_that_cannot_be_used_is_given_up_and_the_others_do_its_tasks():
    usable = find_gpus()[0]
    with managing([usable, Gpu(7, "meta:nonsense", "broken")]) as made:
        pinned, anybodys = made.submit(tasks.double, 1, gpu=7), made.submit(tasks.double, 2)
        lost = error(pinned)
        assert isinstance(lost, GpuLost)
        assert "GPU 7 (broken) is used no more: its worker could not start" in str(lost)
        assert result(anybodys) == 4
        with pytest.raises(GpuLost):
            made.submit(tasks.double, 1, gpu=7)


def test_a_manager_needs_a_gpu():
    with pytest.raises(BadArgument, match="at least one GPU"):
        GpuManager([], pool_bytes=1)


def test_places_in_a_ring_are_free_again_in_their_order_and_never_overlap():
    ring = Ring(4096, 1024)
    assert [ring.take(size) for size in (256, 1, 512)] == [4096, 4352, 4608]
    assert ring.take(1) is None
    ring.give_back()
    assert ring.take(512) is None
    assert ring.take(200) == 4096
    assert ring.take(1) is None
    for _ in range(2):
        ring.give_back()
    assert ring.take(600) == 4352
    assert ring.take(1) is None
    for _ in range(2):
        ring.give_back()
    assert ring.take(1024) == 4096


def test_the_last_places_in_a_ring_can_be_taken_back():
    ring = Ring(0, 1024)
    assert [ring.take(size) for size in (256, 512)] == [0, 256]
    ring.take_back()
    assert ring.take(768) == 256
    ring.take_back()
    ring.give_back()
    assert ring.take(1024) == 0


def test_frames_are_read_whole_however_they_are_cut():
    sent = b"".join(ANSWER.pack(n, 0, 5, n) + b"x" * n for n in range(4))
    received, left = [], bytearray()
    for byte in sent:
        left.append(byte)
        received += frames(left, ANSWER)
    assert received == [((n, 0, 5), b"x" * n) for n in range(4)]
    assert left == b""


def test_an_arena_counts_what_alignment_takes():
    arena = Arena(torch.empty(1024, dtype=torch.uint8), "a test")
    arena.begin(256, 512)
    first, second = (arena.empty((2, 3), torch.float32) for _ in range(2))
    assert second.data_ptr() - first.data_ptr() == 256
    with pytest.raises(OutOfMemory, match=r"2 bytes are requested, and 0 are free .* of a test"):
        arena.empty((1,), torch.float16)


@no_gpu
def test_without_gpus_the_workload_is_verified_on_stand_ins():
    found = run(GpuManagerOptions(size=40, tasks=2, seed=2**63 - 1))
    assert (found.verified, found.simulated, found.metrics["gpus"]) == (True, True, 2)
    assert found.metrics["checks_during_hang"] > 0
    assert found.metrics["time_out_seconds"] >= session.HANG_SECONDS
    assert found.metrics["speedup_ratio"] > 0
    assert found.headline.endswith("us per task (simulated)")


def test_a_wrong_product_is_a_wrong_result():
    with pytest.raises(WrongResult, match=r"wrong by 1.000e\+00 where rounding explains 1.000e-03"):
        session.right(Agreement(1.0, 1e-3), "a product")


def test_a_manager_that_hands_out_more_than_a_quota_is_found_out(manager, monkeypatch):
    plan = session.Plan(101, 33, 64, torch.float32, 1, 1, 1, 1, 1)
    assert session.refused(manager, plan) == {"pool_bytes": plan.pool_bytes}
    monkeypatch.setattr(builtin, "take_too_much", tasks.double)
    with pytest.raises(WrongResult, match="of a quota of"):
        session.refused(manager, plan)


class Hanging:
    """A manager whose task hangs for a while."""

    def submit(self, function, *, gpu, seconds):
        self.task = Future()
        threading.Timer(SHORT, self.task.set_exception, (TaskTimedOut("it hung"),)).start()
        return self.task


def test_a_round_of_checks_may_take_longer_than_a_task_hangs(monkeypatch):
    checked = []

    def check(manager, gpu, plan, seed):
        checked.append(gpu.index)
        time.sleep(SHORT / 4)

    monkeypatch.setattr(session, "check", check)
    gpus = [Gpu(index, "cpu", "a stand-in") for index in range(9)]
    found = session.survived(Hanging(), gpus, None, 0)
    assert found["checks_during_hang"] > 0
    # The last one is of the GPU on which it hung.
    assert checked == [*range(1, len(checked)), 0]
    assert len(checked) < len(gpus)


@pytest.fixture
def started(tmp_path):
    """A command that is under way, in a process group of its own, and its workers."""
    line = [sys.executable, "-m", "gpupack_workloads", "gpu-manager", "--tasks=100000"]
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "GPUPACK_RESULT_PATH": os.devnull,
    }
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(line, env=environ, stderr=log, start_new_session=True)
    deadline = time.monotonic() + SECONDS
    while "is started" not in (tmp_path / "log").read_text():
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def descendants(pid):
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return children + [below for child in children for below in descendants(child)]


def runs(pid):
    """Not a process that has ended: orphans in a container are not reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids):
    deadline = time.monotonic() + SECONDS
    while any(runs(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_end_ends_the_workers_too_and_is_reported(started, number, status):
    workers = descendants(started.pid)
    assert workers
    # To all of them, as a terminal sends Ctrl-C.
    (os.killpg if number == signal.SIGINT else os.kill)(started.pid, number)
    assert started.wait(timeout=60) == status
    assert gone(workers)


def test_workers_end_with_a_manager_that_is_killed(started):
    workers = descendants(started.pid)
    started.kill()
    started.wait()
    assert workers
    assert gone(workers)


@pytest.mark.gpu
@one_gpu
def test_torchs_memory_outside_the_pool_is_bounded(manager):
    assert result(manager.submit(tasks.torch_takes, TORCH_BYTES // 2)) == TORCH_BYTES // 2
    failed = error(manager.submit(tasks.torch_takes, 2 * TORCH_BYTES, gpu=0))
    assert isinstance(failed, OutOfMemory)
    assert "out of memory" in str(failed)


@pytest.mark.gpu
@one_gpu
def test_a_task_has_another_stream_than_the_default_one(manager):
    assert result(manager.submit(tasks.own_stream))


@pytest.mark.gpu
@one_gpu
def test_a_kernel_that_does_not_end_is_timed_out_and_the_gpu_is_used_again(manager):
    assert isinstance(error(manager.submit(tasks.hang_on_gpu, gpu=0, seconds=2)), TaskTimedOut)
    assert result(manager.submit(tasks.double, 3, gpu=0)) == 6


@pytest.mark.gpu
@one_gpu
def test_a_task_that_breaks_cudas_context_costs_its_worker_and_no_other_task(manager):
    before = result(manager.submit(tasks.where, gpu=0))
    broken = manager.submit(tasks.break_context, gpu=0, result_bytes=256)
    behind = [manager.submit(tasks.where, gpu=0) for _ in range(5)]
    assert isinstance(error(broken), TaskFailed)
    assert before not in {result(future) for future in behind}
    quota = {"memory_bytes": 3 * 256, "result_bytes": 256, "gpu": 0}
    ones = np.ones(9, np.float32)
    assert result(manager.submit(builtin.vector_add, ones, ones, **quota)).sum() == 18


@pytest.mark.gpu
@one_gpu
def test_on_gpus_the_workload_is_verified_and_timed():
    found = run(GpuManagerOptions(size=1024, tasks=8, require_gpu=True))
    assert (found.verified, found.simulated) == (True, False)
    assert found.metrics["gpus"] == torch.cuda.device_count()
    assert found.metrics["overhead_us"] > 0
    assert ("speedup_ratio" in found.metrics) == (torch.cuda.device_count() > 1)


@pytest.mark.gpu
@two_gpus
def test_independent_tasks_take_every_gpu():
    found = run(GpuManagerOptions(tasks=32, require_gpu=True))
    assert found.metrics["speedup_ratio"] > 0.9 * torch.cuda.device_count()


class AnsweringLate:
    """A worker's stand-in: its first task seems to run for long, and ends while it is asked for.

    So do a process that a loaded host stops, and a task that ends at its limit.
    """

    def __init__(self, wake):
        self.status, self._wake = self, wake
        self._answers, self._late, self._begun = [(NO_TASK, READY)], True, NO_TASK
        self.waits_for_ever = threading.Event()

    def last(self):
        return self._begun, time.monotonic_ns() - (200_000_000 if self._late else 0)

    def recall(self):
        self._answer(self._begun)
        return self._begun

    @contextlib.contextmanager
    def held(self):
        self._answer(self._begun)
        yield

    def _answer(self, number):
        self._answers.append((number, DONE))
        self._late = False

    def send(self, task):
        if self._late and self._begun == NO_TASK:
            self._begun = task.number
        elif not self._late:
            self._answers.append((task.number, DONE))
        return True

    def flush(self):
        pass

    def wait(self, seconds):
        if seconds is None and not select.select([self._wake], [], [], 1.0)[0]:
            self.waits_for_ever.set()
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def receive(self):
        answers, self._answers = self._answers, []
        return [((number, kind, 1000), b"") for number, kind in answers], True

    def value(self, body):
        return body

    def settled(self, task):
        pass

    def recalled(self, task):
        pass

    def end(self, *, grace):
        return "with exit status 0"

    def close(self):
        pass


@pytest.mark.parametrize(
    ("count", "seconds"), [(2, 60.0), (1, 0.0)], ids=["called back", "at its limit"]
)
def test_tasks_are_sent_after_a_slow_one_that_ends_while_it_is_judged(count, seconds):
    workers = []
    supervisor = Supervisor(
        Gpu(0, "cpu", "stand-in"), lambda wake: workers.append(AnsweringLate(wake)) or workers[-1]
    )
    queue = TaskQueue({0: supervisor.wake})
    waiting = [Task(number, "nothing", b"", 0, 0, 0, seconds) for number in (1, 2, 3)]
    for task in waiting[:count]:
        queue.put(task)
    supervisor.start(queue)
    waiting[0].future.result(timeout=10)
    for task in waiting[count:]:
        queue.put(task)
    for task in waiting:
        task.future.result(timeout=10)
    assert not workers[0].waits_for_ever.is_set()
    queue.close(abort=False)
    supervisor.join()
