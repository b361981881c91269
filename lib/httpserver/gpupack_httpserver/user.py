# SPDX-License-Identifier: Apache-2.0
"""A user of the API server."""

import msgspec


class User(msgspec.Struct, frozen=True):
    """A user with the attributes that the API server returns."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}
