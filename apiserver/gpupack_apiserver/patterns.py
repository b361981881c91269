# SPDX-License-Identifier: Apache-2.0
"""Patterns of parameters with their meaning in words: an answer shows no regular expression."""

import re
from typing import Final

from gpupack_apiserver.errors import invalid_cursor
from gpupack_restapi.patterns import IMAGE, MODEL, NAME, NAME_OR_EMPTY, VARIABLE_NAME

DOTTED_NAME: Final = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"
KEY: Final = "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?$"

HOLDER_CURSOR: Final = "^[^/]*/.+/[^/]+$"
"""NAMESPACE/POD/UUID; on one machine the namespace may be empty, and POD has a command."""

COST_CURSOR: Final = "^[^/]*/.*$"
"""The name of the group, which may be empty, and the job."""

_NAME_IN_WORDS: Final = "lower-case letters, digits and '-', with a letter or digit at both ends"

IN_WORDS: Final = {
    NAME: _NAME_IN_WORDS,
    NAME_OR_EMPTY: _NAME_IN_WORDS,
    KEY: "the namespace and the name, as in team-a/train",
    MODEL: "a model, such as H100 or A100-80GB",
    IMAGE: "the name of an image, without spaces",
    VARIABLE_NAME: "names with letters, digits, '-', '_' and '.', that begin with no digit",
    DOTTED_NAME: "lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
}


def require_cursor(after: str, form: str) -> None:
    """Refuse a cursor of another form; empty: the first page.

    Raises:
        CallInvalid: it is not `next` of an earlier answer.
    """
    if after and not re.fullmatch(form, after):
        raise invalid_cursor(after)
