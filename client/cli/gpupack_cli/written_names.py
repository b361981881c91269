# SPDX-License-Identifier: Apache-2.0
"""Callbacks of options and arguments that check names of objects.

A name becomes a part of a path: one with a slash, or an empty one, would address another object.
"""

import re
from typing import Final

import click

from gpupack_crds.names import MAX_JOB_NAME

MAX_NAME: Final = 253
MAX_NAMESPACE: Final = 63
"""Maximum characters of names of objects, and of namespaces, in Kubernetes."""

_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_NEW_JOB: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def name(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Return a valid name; None where the option is absent."""
    return None if value is None else _required(value, _NAME)


def job_or_pod(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """Return the name of a GPUJob, or pod/NAME."""
    kind, slash, rest = value.partition("/")
    of_pod = slash and kind in {"pod", "pods"}
    return f"pod/{_required(rest, _NAME)}" if of_pod else _required(value, _NAME)


def name_or_empty(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """Return a valid name; empty: none is given."""
    return value and _required(value, _NAME)


def new_job_or_empty(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """Return a name that the CRD accepts for a new GPUJob; empty: none is given."""
    _require_length(value, MAX_JOB_NAME)
    if not value or _NEW_JOB.fullmatch(value):
        return value
    raise click.BadParameter(
        f"{value[:63]!r} is not a valid name; write lower-case letters, digits and hyphens, "
        "beginning with a letter and ending with a letter or digit"
    )


def namespace_or_empty(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """Return a namespace, without dots and with at most 63 characters; empty: none is given."""
    return value and _required(value, _LABEL, MAX_NAMESPACE)


def _required(value: str, form: re.Pattern[str], maximum: int = MAX_NAME) -> str:
    _require_length(value, maximum)
    if form.fullmatch(value):
        return value
    fix = "write lower-case letters, digits and hyphens"
    if "/" in value:
        fix = "write only the name, and give the namespace of a job by -n"
    raise click.BadParameter(f"{value[:63]!r} is not a valid name; {fix}")


def _require_length(value: str, maximum: int) -> None:
    if len(value) > maximum:
        raise click.BadParameter(
            f"'{value[:32]}…' is too long: it has {len(value)} characters, and the maximum is "
            f"{maximum}"
        )
