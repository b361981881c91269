# SPDX-License-Identifier: Apache-2.0
"""How gpupack-api names the user for which it asks the accountant.

A client certificate cannot be passed on as a token can. So gpupack-api sends its own token, and the
user in a header. The accountant believes the header of a caller that has a right of its own for
this, `create gpujobs/costcaller`, and refuses it of all others.
"""

import urllib.parse
from typing import Final

import msgspec

from gpupack_api.errors import CallWrong
from gpupack_serving.user import User

HEADER: Final = "Gpupack-Caller"


def written(user: User) -> str:
    """Write a user into the header: names are of any script, headers are not."""
    return urllib.parse.quote(msgspec.json.encode(user))


def read(header: str) -> User:
    """Read what `written` wrote; raises CallWrong."""
    try:
        user = msgspec.json.decode(urllib.parse.unquote_to_bytes(header), type=User)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallWrong(HEADER, header, "send a user as gpupack-api writes it") from error
    if not user.username:
        raise CallWrong(HEADER, header, "send a user with a name")
    return user
