# SPDX-License-Identifier: Apache-2.0
"""The check whether a pending job may start now."""
