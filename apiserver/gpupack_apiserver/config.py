# SPDX-License-Identifier: Apache-2.0
"""Settings that may change while the API runs, in a file that the kubelet updates."""

import asyncio
import hashlib
import logging
import pathlib
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
import yaml

from gpupack_apiserver.errors import ConfigInvalid, Missing
from gpupack_restapi.config import Change

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 10.0
"""Seconds between two checks of the file; the kubelet updates it within a minute."""

MAX_BYTES: Final = 64 << 10
_UNKNOWN: Final = re.compile("unknown field `([^`]*)`")

ABSENT: Final = b""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file; absent fields have these defaults.

    Attributes:
        log_level: log level; empty: as at the start.
        sample_seconds: interval of the history's samples.
        call_burst: calls that a user may make at once, ...
        calls_per_second: ... and then in a second.
        streams_per_user: streams of events of one user.
    """

    log_level: Literal["", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = ""
    sample_seconds: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 10.0
    call_burst: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 50
    calls_per_second: Annotated[float, msgspec.Meta(ge=0.1, le=100_000)] = 20.0
    streams_per_user: Annotated[int, msgspec.Meta(ge=0, le=64)] = 4


class ConfigFile:
    """The configuration file of one process.

    Args:
        path: path of the file; None: there is none, and `Config` has the defaults.
        apply: called with the present configuration, also at the start.
    """

    def __init__(self, path: pathlib.Path | None, apply: Callable[[Config], None]) -> None:
        self._path, self._apply = path, apply
        self._seen = ABSENT
        self.current = Config()
        apply(self.current)

    def reload(self) -> list[Change]:
        """Read the file, apply it, and return the changes.

        Raises:
            Missing: there is no file.
            ConfigInvalid: it is not valid; the previous configuration stays in effect.
        """
        if self._path is None:
            raise Missing("this server was started without a configuration file")
        text = _read(self._path)
        self._seen = _digest(text)
        before, self.current = self.current, _parsed(text)
        changes = _changes(before, self.current)
        if changes:
            self._apply(self.current)
            texts = (f"{each.field} from {each.before!r} to {each.after!r}" for each in changes)
            log.info("the configuration changed: %s", ", ".join(texts))
        return changes

    async def run(self) -> None:
        """Read the file, and again whenever it changes, without end."""
        while True:
            if self._path is not None and self._has_changed(self._path):
                try:
                    self.reload()
                except ConfigInvalid as error:
                    log.error("%s; the previous one stays in effect", error)  # noqa: TRY400 - no bug
            await asyncio.sleep(CHECK_SECONDS)

    def _has_changed(self, path: pathlib.Path) -> bool:
        try:
            return _digest(_read(path)) != self._seen
        except ConfigInvalid:
            is_new, self._seen = self._seen != ABSENT, ABSENT
            return is_new


def _read(path: pathlib.Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid("", path.name, f"make it a text file ({error})") from error
    if len(text) > MAX_BYTES:
        raise ConfigInvalid("", path.name, f"make it no longer than {MAX_BYTES} bytes")
    return text


def _parsed(text: str) -> Config:
    try:
        given = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise ConfigInvalid("", text[:64], f"write YAML ({said[:200]})") from error
    try:
        return msgspec.convert(given or {}, Config)
    except msgspec.ValidationError as error:
        raise _invalid(given, str(error)) from error


def _invalid(given: Any, message: str) -> ConfigInvalid:
    """Convert msgspec's message, which has the field at its end: `... - at `$.sample_seconds``."""
    if not isinstance(given, dict):
        return ConfigInvalid("", given, "write fields and their values")
    if found := _UNKNOWN.search(message):
        known = ", ".join(Config.__struct_fields__)
        return ConfigInvalid(found[1], given[found[1]], f"use one of {known}")
    reason, _, at = message.partition(" - at `$.")
    field = at.removesuffix("`")
    return ConfigInvalid(field, given.get(field, ""), reason)


def _changes(before: Config, after: Config) -> list[Change]:
    return [
        Change(name, getattr(before, name), getattr(after, name))
        for name in Config.__struct_fields__
        if getattr(before, name) != getattr(after, name)
    ]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
