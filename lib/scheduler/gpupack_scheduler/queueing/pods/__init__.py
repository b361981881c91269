# SPDX-License-Identifier: Apache-2.0
"""Standalone pods, and attempts that must end because of their devices."""
