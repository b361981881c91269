# SPDX-License-Identifier: Apache-2.0
"""Settings of all properties (hypothesis).

A change is judged by the same cases in each run. `make test-properties` searches for new ones: with
GPUPACK_TEST_CASES, cases are random. No case is timed: a busy machine makes one take longer than
any fixed deadline.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="GPUPACK_TEST_CASES" not in os.environ,
)
settings.load_profile("untimed")
