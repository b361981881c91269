# SPDX-License-Identifier: Apache-2.0
"""Patterns of the fields of requests."""

from typing import Final

NAME: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAME_OR_EMPTY: Final = f"^$|{NAME}"
MODEL: Final = "^([A-Za-z0-9][-A-Za-z0-9 ._+]*)?$"
IMAGE: Final = r"^\S+$"
VARIABLE_NAME: Final = "^[-._a-zA-Z][-._a-zA-Z0-9]*$"
