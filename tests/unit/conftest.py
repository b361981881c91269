# SPDX-License-Identifier: Apache-2.0
"""Unit tests are not timed: a busy machine makes one case take longer than any fixed deadline."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
