# SPDX-License-Identifier: Apache-2.0
"""One command per workload: the module `vector_add` holds the command `vector-add`, as `command`.

A new workload is a new module; no list names them. A module is imported when its command is asked
for, so that an error in one leaves the others usable, and none imports torch: arguments are judged
before that takes its seconds.
"""

import importlib
import pkgutil

import click

NO_COMMANDS = ("common", "serving")
SERVERS = ("inference-server",)
"""Commands that run until a signal ends them: for a Deployment, not for a GPUJob."""
OF_OWN_IMAGES = ("tensorflow",)
"""Commands that are in another image: a GPUJob names that, and no workload."""


def names() -> list[str]:
    """Return the names of all workloads that a GPUJob can name."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    found = {name.replace("_", "-") for name in modules if name not in NO_COMMANDS}
    return sorted(found.difference(SERVERS, OF_OWN_IMAGES))


def load(name: str) -> click.Command:
    """Return the command of any of them."""
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    command: click.Command = module.command
    return command
