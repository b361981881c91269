# SPDX-License-Identifier: Apache-2.0
"""What one address may cost."""

import pytest

from gpupack_httpserver.peer_limits import PEERS, ConnectionLimits, TokenBuckets


class Connections:
    """Opens connections and notes which were dropped."""

    def __init__(self, **most):
        self.limits = ConnectionLimits(**most)
        self.dropped = []

    def open(self, peer, name):
        return self.limits.take(peer, lambda: self.dropped.append(name))


def test_an_address_with_too_many_connections_loses_the_one_idle_for_longest():
    connections = Connections(most=10, per_peer=2)
    first = connections.open("a", "first")
    connections.open("a", "second")
    first.busy()
    first.rest()
    connections.open("a", "third")
    assert connections.dropped == ["second"]


def test_one_address_takes_no_connection_from_another_below_the_limit():
    connections = Connections(most=10, per_peer=2)
    connections.open("b", "other")
    for number in range(50):
        connections.open("a", number)
    assert connections.dropped == list(range(48))


def test_at_the_limit_the_connection_that_is_idle_for_longest_is_dropped():
    connections = Connections(most=2, per_peer=2)
    connections.open("a", "first")
    connections.open("b", "second")
    assert connections.open("c", "third") is not None
    assert connections.dropped == ["first"]


def test_a_busy_connection_is_not_dropped_for_another():
    connections = Connections(most=10, per_peer=1)
    connections.open("a", "first").busy()
    assert connections.open("a", "second") is None
    assert connections.dropped == []


def test_a_closed_connection_leaves_its_slot():
    connections = Connections(most=1, per_peer=1)
    slot = connections.open("a", "first")
    slot.busy()
    slot.free()
    slot.rest()
    assert connections.open("a", "second") is not None
    assert connections.dropped == []


@pytest.fixture
def buckets():
    now = [0.0]
    built = TokenBuckets(burst=2, seconds=10, clock=lambda: now[0])
    built.now = now
    return built


def test_an_address_may_do_so_much_at_once_and_then_more_slowly(buckets):
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    buckets.now[0] = 9.9
    assert not buckets.take("a")
    buckets.now[0] = 10.1
    assert buckets.take("a")
    assert not buckets.take("a")


def test_addresses_do_not_share_what_they_may_do(buckets):
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    assert buckets.take("b")


def test_returned_tokens_may_be_taken_again_and_no_more(buckets):
    for _ in range(5):
        buckets.take("a")
        buckets.put_back("a")
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]


def test_addresses_without_end_are_not_remembered_without_end(buckets):
    for number in range(3 * PEERS):
        buckets.take(str(number))
    assert len(buckets._left) == PEERS
