# SPDX-License-Identifier: Apache-2.0
"""No case of hypothesis is timed: a busy machine makes one take longer than any fixed deadline."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
