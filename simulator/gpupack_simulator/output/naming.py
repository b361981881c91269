# SPDX-License-Identifier: Apache-2.0
"""Names of files."""


def file_name(text: str) -> str:
    """As part of the name of a file: a policy may be an expression."""
    return "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in text)
