# SPDX-License-Identifier: Apache-2.0
"""Patterns of parameters with their meaning in words: an answer shows no regular expression."""

from typing import Final

NAME: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAME_OR_EMPTY: Final = f"^$|{NAME}"
DOTTED_NAME: Final = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"
KEY: Final = "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?$"
MODEL: Final = "^([A-Za-z0-9][-A-Za-z0-9 ._+]*)?$"

_NAME_IN_WORDS: Final = "lower-case letters, digits and '-', with a letter or digit at both ends"

IN_WORDS: Final = {
    NAME: _NAME_IN_WORDS,
    NAME_OR_EMPTY: _NAME_IN_WORDS,
    KEY: "the namespace and the name, as in team-a/train",
    MODEL: "a model, such as H100 or A100-80GB",
    DOTTED_NAME: "lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
}
