# SPDX-License-Identifier: Apache-2.0
"""The header that names the user of a cost query to the cost service.

A client certificate cannot be passed on as a token can. So gpupack-api sends its own token, and the
user in a header. The cost service accepts the header only from a caller with the permission for it,
`create gpujobs/costcaller`.
"""

import urllib.parse
from typing import Final

import msgspec

from gpupack_apiserver.errors import CallInvalid
from gpupack_httpserver.user import User

HEADER: Final = "Gpupack-Caller"


def encode(user: User) -> str:
    """Return a user as the header's value, in ASCII: names may be in any script."""
    return urllib.parse.quote(msgspec.json.encode(user))


def decode(header: str) -> User:
    """Parse what `encode` returned; raises CallInvalid."""
    try:
        user = msgspec.json.decode(urllib.parse.unquote_to_bytes(header), type=User)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallInvalid(HEADER, header, "send a user as gpupack-api writes it") from error
    if not user.username:
        raise CallInvalid(HEADER, header, "send a user with a name")
    return user
