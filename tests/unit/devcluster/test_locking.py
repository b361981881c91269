# SPDX-License-Identifier: Apache-2.0
"""One change of the cluster at a time."""

import threading

from gpupack_devcluster.locking import locked, locked_if_free


def test_a_second_driver_waits_until_the_first_is_done(tmp_path):
    order = []

    def second():
        with locked(tmp_path / "lock"):
            order.append("second")

    with locked(tmp_path / "lock"):
        other = threading.Thread(target=second)
        other.start()
        other.join(timeout=0.1)
        order.append("first")
    other.join(timeout=30)
    assert order == ["first", "second"]


def test_locked_if_free_does_not_wait_for_a_held_lock(tmp_path):
    with locked_if_free(tmp_path / "lock") as first, locked_if_free(tmp_path / "lock") as second:
        assert (first, second) == (True, False)
    with locked_if_free(tmp_path / "lock") as third:
        assert third
