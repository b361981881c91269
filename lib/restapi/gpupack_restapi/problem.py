# SPDX-License-Identifier: Apache-2.0
"""Errors of the REST API: application/problem+json (RFC 9457)."""

import msgspec


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem: what was wrong, and what to do."""

    title: str
    status: int
    detail: str
    field: str = ""
    value: str = ""
    fix: str = ""
