# SPDX-License-Identifier: Apache-2.0
"""The queue alone, without torch or processes."""

from concurrent.futures import CancelledError

import pytest

from gpupack_workloads.gpu_manager.task_queue import GpuLost, ManagerClosed, Task, TaskQueue

LOST = GpuLost("GPU 0 is used no more")


class Woken(list):
    """Records the supervisors that are woken."""

    def queue(self, *gpus):
        return TaskQueue({gpu: lambda gpu=gpu: self.append(gpu) for gpu in gpus})


def task(number, gpu=None):
    return Task(number, "f", b"", gpu, memory_bytes=0, result_bytes=0, seconds=1.0)


def filled(queue, *tasks):
    for each in tasks:
        queue.put(each)
    return queue


def numbers(tasks):
    return [task.number for task in tasks]


def test_a_gpu_gets_its_own_tasks_first_and_then_the_shared_ones_in_order():
    queue = filled(Woken().queue(0, 1), task(1), task(2, gpu=1), task(3), task(4, gpu=0))
    assert numbers(queue.take(1, least=1, most=2)) == [2, 1]
    assert numbers(queue.take(1, least=1, most=9)) == [3]


def test_a_supervisor_with_too_few_tasks_is_woken_once_by_the_next_one():
    woken = Woken()
    queue = woken.queue(0, 1)
    assert queue.take(1, least=1, most=2) == []
    filled(queue, task(1), task(2))
    assert woken == [1]


def test_no_supervisor_is_woken_for_another_gpus_task():
    woken = Woken()
    queue = woken.queue(0, 1)
    queue.take(0, least=1, most=2)
    filled(queue, task(1, gpu=1))
    assert woken == []


def test_the_supervisor_with_the_fewest_tasks_is_woken_first():
    woken = Woken()
    queue = woken.queue(0, 1)
    queue.take(0, least=1, most=2)
    queue.take(1, least=2, most=2)
    filled(queue, task(1))
    assert woken == [1]


def test_a_woken_supervisor_that_can_take_no_task_wakes_another_one():
    woken = Woken()
    queue = woken.queue(0, 1)
    queue.take(0, least=2, most=2)
    queue.take(1, least=1, most=1)
    filled(queue, task(1))
    queue.pass_on(0)
    queue.pass_on(0)
    assert woken == [0, 1]


def test_returned_tasks_come_before_the_others_and_can_run_again():
    queue = filled(Woken().queue(0), task(1), task(2), task(3))
    taken = queue.take(0, least=1, most=2)
    queue.give_back(taken)
    assert numbers(queue.take(0, least=1, most=9)) == [1, 2, 3]


def test_a_task_that_its_caller_has_cancelled_is_not_taken():
    first, second = task(1), task(2)
    queue = filled(Woken().queue(0), first, second)
    first.future.cancel()
    assert queue.take(0, least=1, most=2) == [second]


def test_a_lost_gpus_tasks_fail_and_shared_ones_wait_for_another_gpu():
    own, anybodys = task(1, gpu=0), task(2)
    queue = filled(Woken().queue(0, 1), own, anybodys)
    queue.lose(0, LOST)
    assert own.future.exception() is LOST
    assert queue.take(1, least=1, most=2) == [anybodys]
    with pytest.raises(GpuLost):
        queue.put(task(3, gpu=0))


def test_when_the_last_gpu_is_lost_all_tasks_fail():
    waiting, taken = task(1), task(2)
    queue = filled(Woken().queue(0), taken, waiting)
    queue.take(0, least=1, most=1)
    queue.lose(0, LOST)
    queue.give_back([taken])
    assert (waiting.future.exception(), taken.future.exception()) == (LOST, LOST)
    with pytest.raises(GpuLost):
        queue.put(task(3))


def test_a_closed_queue_accepts_no_task_and_hands_out_those_it_has():
    queue = filled(Woken().queue(0), task(1))
    queue.close(abort=False)
    with pytest.raises(ManagerClosed, match=r"task 2 \(f\) came after the manager was closed"):
        queue.put(task(2))
    assert not queue.finished(0)
    queue.take(0, least=1, most=1)
    assert queue.finished(0)


def test_an_aborted_queue_cancels_waiting_tasks_and_wakes_all_supervisors():
    woken, waiting = Woken(), task(1)
    queue = filled(woken.queue(0, 1), waiting)
    queue.close(abort=True)
    with pytest.raises(CancelledError):
        waiting.future.result(timeout=0)
    assert (queue.aborted, woken) == (True, [0, 1])
