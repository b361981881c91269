# SPDX-License-Identifier: Apache-2.0
"""The objects that the operator creates for an attempt, as pure functions."""
