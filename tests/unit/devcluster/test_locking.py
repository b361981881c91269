# SPDX-License-Identifier: Apache-2.0
"""One change of the cluster at a time."""

import threading

from gpupack_devcluster.locking import locked


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
    other.join(timeout=10)
    assert order == ["first", "second"]
