# SPDX-License-Identifier: Apache-2.0
"""What a check says."""

import enum

import msgspec


class Level(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sentence about one thing, and what to do where it is not well.

    Attributes:
        check: which check says it.
        level: how bad it is.
        message: what is so.
        fix: what to do; empty where it is well.
    """

    check: str
    level: Level
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """It is well."""
    return Finding(check, Level.OK, message)


def warning(check: str, message: str, *, fix: str) -> Finding:
    """It works, and somebody should look."""
    return Finding(check, Level.WARNING, message, fix)


def failed(check: str, message: str, *, fix: str) -> Finding:
    """It is broken."""
    return Finding(check, Level.FAILED, message, fix)


def skipped(check: str, message: str) -> Finding:
    """It could not be looked at."""
    return Finding(check, Level.SKIPPED, message)
