# SPDX-License-Identifier: Apache-2.0
"""The user for which gpupack-api asks the cost service, in a header.

A client certificate cannot be passed on as a token can. So gpupack-api sends its own token, and the
user in a header. The cost service accepts the header only from a caller with the permission for it,
`create gpujobs/costcaller`.
"""

import urllib.parse
from typing import Final

import msgspec

from gpupack_apiserver.errors import CallWrong
from gpupack_httpserver.user import User

HEADER: Final = "Gpupack-Caller"


def written(user: User) -> str:
    """Return a user as the header's value: names may be in any script, headers may not."""
    return urllib.parse.quote(msgspec.json.encode(user))


def read(header: str) -> User:
    """Parse what `written` returned; raises CallWrong."""
    try:
        user = msgspec.json.decode(urllib.parse.unquote_to_bytes(header), type=User)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallWrong(HEADER, header, "send a user as gpupack-api writes it") from error
    if not user.username:
        raise CallWrong(HEADER, header, "send a user with a name")
    return user
