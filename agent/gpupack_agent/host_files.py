# SPDX-License-Identifier: Apache-2.0
"""Files of a host whose root is mounted in a folder; links are resolved within that root."""

import contextlib
import mmap
import os
import pathlib
import re
import stat
from typing import Final

MAX_BYTES: Final = 1 << 20
"""The largest size of a file that is read as a whole: larger files are no configuration."""

MAX_LINKS: Final = 40
"""The largest number of links that are followed, as in Linux: path_resolution(7)."""

MAX_BINARY_BYTES: Final = 1 << 30


class Root:
    """A host's root folder.

    Args:
        path: the path where it is mounted; `/` on the host itself.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def find(self, name: str) -> pathlib.Path | None:
        """Return the path of a host's file or folder in this process; None: it does not exist."""
        parts = _parts(name)
        resolved, links = list[str](), 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                resolved = resolved[:-1]
                continue
            found = self.path.joinpath(*resolved, part)
            try:
                target = str(found.readlink()) if found.is_symlink() else ""
            except OSError:
                return None
            if not target:
                resolved.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                return None
            resolved = [] if target.startswith("/") else resolved
            parts = _parts(target) + parts
        found = self.path.joinpath(*resolved)
        return found if _exists(found) else None

    def exists(self, name: str) -> bool:
        """Tell whether there is such a file, folder or socket."""
        return self.find(name) is not None

    def is_folder(self, name: str) -> bool:
        """Tell whether there is such a folder."""
        found = self.find(name)
        return found is not None and found.is_dir()

    def text(self, name: str) -> str | None:
        """Return the text of a file; None: missing, not readable, larger than MAX_BYTES."""
        read = self.binary(name)
        return None if read is None else read.decode(errors="replace")

    def binary(self, name: str) -> bytes | None:
        """Return the bytes of a file; None: missing, not readable, larger than MAX_BYTES."""
        found = self.find(name)
        if found is None or not _is_file(found):
            return None
        try:
            with found.open("rb") as opened:
                read = opened.read(MAX_BYTES + 1)
        except OSError:
            return None
        return read if len(read) <= MAX_BYTES else None

    def is_unreadable(self, name: str) -> bool:
        """Tell whether the permissions forbid reading a file, or seeing whether it exists."""
        found = self.find(name) or self.path / name.lstrip("/")
        try:
            if _is_file(found):
                found.open("rb").close()
            else:
                found.stat()
        except PermissionError:
            return True
        except (OSError, ValueError):
            return False
        return False

    def line(self, name: str) -> str:
        """Return the first line of a file; empty: there is none."""
        return next(iter((self.text(name) or "").splitlines()), "").strip()

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; empty if the folder cannot be read."""
        found = self.find(folder)
        try:
            return sorted(each.name for each in found.iterdir()) if found is not None else []
        except OSError:
            return []

    def search(self, name: str, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """Return the first match of a pattern in a program; None: there is none."""
        found = self.find(name)
        if found is None or not _is_file(found):
            return None
        with contextlib.suppress(OSError, ValueError), found.open("rb") as opened:
            size = min(os.fstat(opened.fileno()).st_size, MAX_BINARY_BYTES)
            with mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) as mapped:
                match = pattern.search(mapped)
                # The matched bytes disappear with the mapping, so a copy of them is matched.
                return re.match(pattern, bytes(match.group())) if match else None
        return None


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in {"", "."}]


def _exists(path: pathlib.Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _is_file(path: pathlib.Path) -> bool:
    """Tell whether a path is a regular file: opening a pipe would block."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
