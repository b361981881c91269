# SPDX-License-Identifier: Apache-2.0
"""The result of a check."""

import enum

import msgspec


class Level(enum.StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check, with a fix where it is not ok.

    Attributes:
        check: name of the check.
        level: severity.
        message: the present state.
        fix: what to do; empty where nothing is needed.
    """

    check: str
    level: Level
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """Return a finding that the check succeeded."""
    return Finding(check, Level.OK, message)


def warning(check: str, message: str, *, fix: str) -> Finding:
    """Return a finding about something that works and needs attention."""
    return Finding(check, Level.WARNING, message, fix)


def failed(check: str, message: str, *, fix: str) -> Finding:
    """Return a finding about something broken."""
    return Finding(check, Level.FAILED, message, fix)


def skipped(check: str, message: str) -> Finding:
    """Return a finding about something that could not be checked."""
    return Finding(check, Level.SKIPPED, message)
