# SPDX-License-Identifier: Apache-2.0
"""Lines as an MPS daemon of driver 580 wrote them on an H200."""

from gpupack_agent.mps.log import LogReader

FAULT = """\
[2026-11-23 22:48:19.920 Server   788] Client {PID: 1343, Context: 1} encountered a fatal GPU error.
[2026-11-23 22:48:19.920 Server   788] Server is handling a fatal GPU error.
[2026-11-23 22:48:19.920 Server   788] Client {PID: 1343, Context ID: 1} on device 0 to be torn down
[2026-11-23 22:48:19.920 Server   788] Client {PID: 1367, Context ID: 1} on device 0 to be torn down
[2026-11-23 22:48:19.920 Server   788] The following devices will be reset:
[2026-11-23 22:48:19.920 Server   788] 0
[2026-11-23 22:48:19.920 Server   788] The following client process have a sticky error set:
[2026-11-23 22:48:19.920 Server   788] 1343
[2026-11-23 22:48:19.920 Server   788] 1367
[2026-11-23 22:48:25.552 Server   788] Server failed to recevie command with status 806, assuming \
client {PID: 1343, Context ID: 1} exit
[2026-11-23 22:48:25.552 Server   788] Client {PID: 1343, Context ID: 1} exiting. Number of active \
client contexts is 1.
"""
"""The kernel that wrote where it may not was 1367's."""

ENDED = """\
[2026-11-23 22:47:54.497 Server   788] Client {PID: 1176, Context ID: 1} exiting. Number of active \
client contexts is 1.
[2026-11-23 22:47:54.649 Server   788] Client {PID: 1117, Context: 1} encountered a fatal GPU error.
[2026-11-23 22:47:54.649 Server   788] Server is handling a fatal GPU error.
[2026-11-23 22:47:54.649 Server   788] Client {PID: 1117, Context ID: 1} on device 0 to be torn down
[2026-11-23 22:47:54.649 Server   788] The following client process have a sticky error set:
[2026-11-23 22:47:54.649 Server   788] 1117
"""


def faults(text, *, reader=None, now=100.0):
    reader = reader or LogReader()
    found = (reader.read(line, now=now) for line in text.splitlines())
    return [fault for fault in found if fault]


def test_clients_that_fail_together_are_one_fault_without_a_culprit():
    (fault,) = faults(FAULT)
    assert (fault.clients, fault.exited) == ((1343, 1367), ())


def test_clients_that_ended_just_before_are_recorded():
    (fault,) = faults(ENDED)
    assert (fault.clients, fault.exited) == ((1117,), (1176,))


def test_clients_that_ended_long_before_are_not_recorded():
    reader = LogReader()
    lines = ENDED.splitlines()
    assert faults(lines[0], reader=reader, now=90.0) == []
    (fault,) = faults("\n".join(lines[1:]), reader=reader)
    assert fault.exited == ()


def test_one_fault_after_another_are_two():
    reader = LogReader()
    assert [len(fault.clients) for fault in faults(FAULT + ENDED, reader=reader)] == [2, 1]
