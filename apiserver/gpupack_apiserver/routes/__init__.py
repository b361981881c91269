# SPDX-License-Identifier: Apache-2.0
"""The calls, under /api/v1/gpu/."""
