# SPDX-License-Identifier: Apache-2.0
"""The one token of this machine's server: a user who can read its file may do everything.

It is created at the first start. To replace it, remove the file and restart the server.
"""

import contextlib
import hmac
import os
import pathlib
import secrets
import stat
from typing import Final

from gpupack_apiserver.errors import TokenUnusable

BYTES: Final = 32
MIN_CHARACTERS: Final = 32
MAX_BYTES: Final = 4096
OWNER_MODE: Final = 0o600
SCHEME: Final = "Bearer "


def token_at(path: pathlib.Path) -> str:
    """Read the token, or create it.

    Raises:
        TokenUnusable: it cannot be read or created, is too short, or users other than its owner can
            read it.
    """
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        _make(path)
        return _read(path)
    except OSError as error:
        raise _unusable(path, error) from error


def is_shown(authorization: str, token: str) -> bool:
    """Return whether a call's Authorization header has this token."""
    return hmac.compare_digest(authorization.encode(), f"{SCHEME}{token}".encode())


def _read(path: pathlib.Path) -> str:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(opened, errors="replace") as file:
        found = os.fstat(opened)
        is_private = stat.S_ISREG(found.st_mode) and not stat.S_IMODE(found.st_mode) & ~OWNER_MODE
        if not is_private or found.st_uid != os.geteuid():
            raise TokenUnusable(
                f"{path}: other users can read it, or it is another user's; run `chmod 600 {path}` "
                "if it is yours and no user has read it, else remove it, and a new one is created"
            )
        text = file.read(MAX_BYTES).strip()
    if len(text) < MIN_CHARACTERS or not text.isascii() or not text.isprintable():
        raise TokenUnusable(
            f"{path}: it has no token of at least {MIN_CHARACTERS} characters; remove it, and a "
            "new one is created"
        )
    return text


def _make(path: pathlib.Path) -> None:
    """Create the file completely or not at all; a concurrent process may be first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    try:
        opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_MODE)
        with os.fdopen(opened, "w") as file:
            file.write(secrets.token_urlsafe(BYTES) + "\n")
            file.flush()
            os.fsync(opened)
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


def _unusable(path: pathlib.Path, error: OSError) -> TokenUnusable:
    return TokenUnusable(
        f"{path}: {error.strerror}; name a folder that this user can write in GPUPACK_STATE_FOLDER"
    )
