# SPDX-License-Identifier: Apache-2.0
import logging
import socket

import pytest

from gpupack_workloads.distributed.rendezvous import (
    WaitPolicy,
    address_of,
    own_address,
    wait_for_name,
)
from gpupack_workloads.errors import PeersMissing


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now = 0.0

    def sleep(self, seconds):
        self.now += seconds

    def policy(self, seconds):
        return WaitPolicy(
            deadline_seconds=seconds, pause_seconds=1, clock=lambda: self.now, sleep=self.sleep
        )


def test_a_name_that_appears_later_is_waited_for():
    clock = Clock()

    def resolve(host):
        if clock.now < 5:
            raise socket.gaierror(-2, "Name or service not known")
        return "198.51.100.7"

    assert wait_for_name("peer", clock.policy(10), resolve) == "198.51.100.7"
    assert clock.now == 5


def test_a_long_wait_is_logged_at_first_and_then_every_ten_seconds(caplog):
    clock = Clock()

    def resolve(host):
        if clock.now < 25:
            raise socket.gaierror(-2, "Name or service not known")
        return "198.51.100.7"

    with caplog.at_level(logging.INFO):
        wait_for_name("peer", clock.policy(30), resolve)
    assert [record.getMessage() for record in caplog.records] == ["waiting for the name peer"] * 3


def test_a_name_that_never_appears_ends_the_wait_and_is_named():
    def resolve(host):
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(PeersMissing, match="name peer of a worker was unknown for 10 s") as caught:
        wait_for_name("peer", Clock().policy(10), resolve)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("loopback", ["127.0.0.1", "::1"])
def test_loopback_has_a_source_address_on_loopback(loopback):
    assert address_of(loopback) == loopback
    try:
        assert own_address(loopback) == loopback
    except PeersMissing as error:
        pytest.skip(f"this host has no such address: {error}")


def test_the_error_for_an_unreachable_address_names_it():
    nowhere = "fe80::1"  # of a link, and no link is named
    with pytest.raises(PeersMissing, match=f"cannot reach {nowhere}, where the others meet: "):
        own_address(nowhere)


def test_an_unknown_name_has_no_address():
    with pytest.raises(OSError, match=r"not known|resolution"):
        address_of("unknown.invalid")
