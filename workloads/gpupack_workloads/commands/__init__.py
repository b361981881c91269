# SPDX-License-Identifier: Apache-2.0
"""One command per workload: the module `vector_add` holds the command `vector-add`, as `command`.

A new workload is a new module; no list names them. A module is imported when its command is asked
for, so that an error in one leaves the others usable, and none imports torch: arguments are judged
before that takes its seconds.
"""

import importlib
import pkgutil

import click

NO_COMMAND = "common"


def names() -> list[str]:
    """Return the names of all workloads."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name.replace("_", "-") for name in modules if name != NO_COMMAND)


def load(name: str) -> click.Command:
    """Return a workload's command."""
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    command: click.Command = module.command
    return command
