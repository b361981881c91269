# SPDX-License-Identifier: Apache-2.0
"""Patterns of fields in requests, and values of fields in answers."""

from typing import Final

import msgspec

NAME: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAME_OR_EMPTY: Final = f"^$|{NAME}"
MODEL: Final = "^([A-Za-z0-9][-A-Za-z0-9 ._+]*)?$"
IMAGE: Final = r"^\S+$"
VARIABLE_NAME: Final = "^[-._a-zA-Z][-._a-zA-Z0-9]*$"


def values(*known: str) -> msgspec.Meta:
    """Return the annotation of a text in an answer with the values that this version knows.

    A client accepts further values. A Literal would make it refuse the whole answer for one value
    of a newer server. Litestar writes `extra` into the OpenAPI document.
    """
    return msgspec.Meta(extra_json_schema={"extra": {"enum": list(known)}})
