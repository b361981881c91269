# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest

from gpupack_workloads.distributed.transports import LOG_VARIABLES, logged, transports_of

INIT = """\
train-1-0:7:7 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
train-1-0:7:21 [0] NCCL INFO NET/Socket : Using [0]eth0:10.244.0.7<0>
train-1-0:7:21 [0] NCCL INFO Channel 00/04 : 0 1
train-1-0:7:21 [0] NCCL INFO P2P Chunksize set to 131072
"""
CONNECTIONS = {
    "P2P/CUMEM": "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    "P2P/IPC": "Channel 03/0 : 0[0] -> 1[1] via P2P/IPC",
    "P2P/MNNVL": "Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL",
    "P2P/direct pointer": "Channel 00 : 0[0] -> 1[1] via P2P/direct pointer",
    "SHM": "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",
    "NET/Socket": "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
    "NET/IB": "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(3)/GDRDMA",
    "NET/Libfabric": "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0/GDRDMA/Shared",
}


def log_of(*connections):
    return INIT + "".join(f"train-1-0:7:21 [0] NCCL INFO {line}\n" for line in connections)


@pytest.mark.parametrize(("transport", "line"), CONNECTIONS.items(), ids=CONNECTIONS)
def test_the_transport_of_a_connection_is_read(transport, line):
    assert transports_of(log_of(line, line)) == transport


def test_several_are_named_and_the_slowest_comes_first():
    order = "NET/Socket,NET/IB,SHM,P2P/CUMEM"
    found = transports_of(log_of(*(CONNECTIONS[each] for each in reversed(order.split(",")))))
    assert found == order


def test_a_log_without_connections_names_none():
    assert transports_of(INIT) == ""


def test_nccl_writes_its_log_to_a_file_that_is_removed():
    environ = {}
    with logged("nccl", environ) as log:
        assert environ["NCCL_DEBUG"] == "INFO"
        assert environ["NCCL_DEBUG_SUBSYS"] == "INIT"
        pathlib.Path(environ["NCCL_DEBUG_FILE"]).write_text(log_of(CONNECTIONS["SHM"]))
        assert log.transports() == "SHM"
    assert environ == {}
    assert log.transports() == ""


@pytest.mark.parametrize("name", LOG_VARIABLES)
def test_a_log_that_the_user_has_requested_does_not_change(name):
    environ = {name: "WARN"}
    with logged("nccl", environ) as log:
        assert (log, environ) == (None, {name: "WARN"})
    assert environ == {name: "WARN"}


def test_gloo_has_no_such_log():
    environ = {}
    with logged("gloo", environ) as log:
        assert (log, environ) == (None, {})
