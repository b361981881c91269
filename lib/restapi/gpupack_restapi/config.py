# SPDX-License-Identifier: Apache-2.0
"""Settings that changed while the server ran."""

import msgspec


class Change(msgspec.Struct, frozen=True):
    """A field whose value has changed."""

    field: str
    before: str | float
    after: str | float


class Reloaded(msgspec.Struct, frozen=True):
    """The settings that changed when the file was read."""

    changed: tuple[Change, ...]
