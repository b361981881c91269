# SPDX-License-Identifier: Apache-2.0
"""No case of hypothesis is timed: a busy machine makes one take longer than any fixed deadline."""

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
