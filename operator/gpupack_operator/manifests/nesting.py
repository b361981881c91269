# SPDX-License-Identifier: Apache-2.0
"""Limit of a pod template's nesting: code that walks or writes it later has a limited stack."""

from typing import Any, Final

from gpupack_operator.errors import TemplateInvalid

MAX_LEVELS: Final = 64
"""Largest number of levels; a PodSpec has about a dozen."""


def check_nesting(template: Any) -> None:
    """Refuse a template that is nested more deeply than any pod can be.

    Raises:
        TemplateInvalid: the template has more than MAX_LEVELS levels.
    """
    level = [template]
    for _ in range(MAX_LEVELS):
        level = [child for each in level for child in _children(each)]
        if not level:
            return
    raise TemplateInvalid(
        f"spec.template is nested more than {MAX_LEVELS} levels deep, which no pod is; remove what "
        "no field of a pod has"
    )


def _children(found: Any) -> list[Any]:
    if isinstance(found, dict):
        return list(found.values())
    return found if isinstance(found, list) else []
