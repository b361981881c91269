# SPDX-License-Identifier: Apache-2.0
"""Copies of PodSpecs in which some containers are changed."""

from collections.abc import Callable, Collection, Iterable

from gpupack_kubeclient.objects import Json


def with_changed(pod_spec: Json, named: Collection[str], change: Callable[[Json], Json]) -> Json:
    """Return a copy of a PodSpec with these containers changed."""
    return pod_spec | {
        "containers": [
            change(each) if each["name"] in named else each for each in pod_spec["containers"]
        ]
    }


def with_default_variables(container: Json, variables: Iterable[Json]) -> Json:
    """Return a copy of a container that also has those variables that it does not set itself.

    The new variables come first: a value may refer to variables before it.
    """
    env = container.get("env") or []
    named = {each.get("name") for each in env}
    return container | {"env": [*(each for each in variables if each["name"] not in named), *env]}
