# SPDX-License-Identifier: Apache-2.0
"""Options that commands share."""

import enum
import functools
import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from gpupack_cli import written_names
from gpupack_cli.session import Session

F = TypeVar("F", bound=Callable[..., Any])


class Output(enum.StrEnum):
    """The format of an answer."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def document(self) -> bool:
        """Whether the format is for programs."""
        return self in (Output.JSON, Output.YAML)


_SESSION_FIELDS: Final = (
    "kubeconfig",
    "context",
    "namespace",
    "server",
    "certificate",
    "system_namespace",
)


def session_options(*, rest: bool = False, namespaced: bool = True) -> Callable[[F], F]:
    """Add the `session` argument to a command, with its options.

    Args:
        rest: the command calls the REST API.
        namespaced: the command is about objects of a namespace.
    """
    options = [
        click.option("--kubeconfig", default="", help="Path of the kubeconfig."),
        click.option("--context", default="", help="Context of the kubeconfig."),
        click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks."),
    ]
    if namespaced:
        options.insert(
            0,
            click.option(
                "-n",
                "--namespace",
                default="",
                callback=written_names.namespace_or_empty,
                help="Namespace (default: that of the context).",
            ),
        )
    if rest:
        options += [
            click.option(
                "--server",
                envvar="GPUPACK_SERVER",
                default="",
                help="Address of the REST API (default: found in the cluster).",
            ),
            click.option(
                "--ca",
                "certificate",
                envvar="GPUPACK_CA",
                default="",
                help="CA certificate that verifies the REST API's server.",
            ),
            click.option(
                "--system-namespace",
                envvar="GPUPACK_SYSTEM_NAMESPACE",
                default="",
                help="Namespace of gpupack (default: found in the cluster).",
            ),
        ]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(**given: Any) -> Any:
            chosen = {name: given.pop(name) for name in _SESSION_FIELDS if name in given}
            return function(session=Session(environ=os.environ, **chosen), **given)

        decorated: Any = call
        for option in reversed(options):
            decorated = option(decorated)
        kept: F = decorated
        return kept

    return decorate


def all_namespaces(function: F) -> F:
    """Add the `everywhere` argument to a command."""
    return click.option(
        "-A", "--all-namespaces", "everywhere", is_flag=True, help="List all namespaces."
    )(function)


def output_option(function: F) -> F:
    """Add the `output` argument to a command."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([each.value for each in Output]),
        default=Output.TABLE.value,
        callback=lambda _context, _option, value: Output(value),
        help="Output format; wide shows all columns.",
    )(function)
