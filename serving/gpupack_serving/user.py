# SPDX-License-Identifier: Apache-2.0
"""A user of the API server."""

import msgspec


class User(msgspec.Struct, frozen=True):
    """Who the API server says it is."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}
