# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig files that are read, and how several are merged.

The first file with an entry of a name provides the whole entry, and the first file with a current
context sets it. Paths in a file are relative to the folder of that file. Files that do not exist
are left out, as kubectl does; any other unreadable file is an error.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from gpupack_kubeclient.environment import SettingsInvalid
from gpupack_kubeclient.kubeconfig import fields
from gpupack_kubeclient.kubeconfig.fields import Cluster, Context, Document, User

T = TypeVar("T")

VARIABLE: Final = "KUBECONFIG"


@dataclasses.dataclass(frozen=True, slots=True)
class Merged:
    """The merged content of all files.

    Attributes:
        where: names of the files, for messages.
    """

    where: str
    clusters: dict[str, Cluster] = dataclasses.field(default_factory=dict)
    users: dict[str, User] = dataclasses.field(default_factory=dict)
    contexts: dict[str, Context] = dataclasses.field(default_factory=dict)
    current_context: str = ""

    @property
    def empty(self) -> bool:
        """Whether all files are empty."""
        return not (self.clusters or self.users or self.contexts or self.current_context)


def paths(environ: Mapping[str, str]) -> list[Path]:
    """Return the files that KUBECONFIG names, or the default one; they need not exist."""
    named = environ.get(VARIABLE, "")
    if not named:
        return [home(environ) / ".kube" / "config"]
    return list(dict.fromkeys(Path(each) for each in named.split(os.pathsep) if each))


def exist(environ: Mapping[str, str]) -> bool:
    """Return whether one of the files exists."""
    return any(path.is_file() for path in paths(environ))


def home(environ: Mapping[str, str]) -> Path:
    """Return the user's home folder; a container's user may have none."""
    return Path(environ.get("HOME") or "/")


def merged(environ: Mapping[str, str]) -> Merged:
    """Read and merge all files that exist.

    Raises:
        SettingsInvalid: a file cannot be read, or is not a valid kubeconfig.
    """
    chosen = paths(environ)
    found = Merged(where=", ".join(map(str, chosen)))
    for path in chosen:
        document = _read(path)
        if document is not None:
            found = _with(found, document, path)
    return found


def _read(path: Path) -> Document | None:
    """Read one file; None: the file does not exist."""
    try:
        return fields.parsed(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, fields.KubeconfigUnreadable) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _unreadable(path, why or str(error)) from error


def _unreadable(path: Path, why: str) -> SettingsInvalid:
    return SettingsInvalid(f"no kubeconfig can be read from {path}: {why}; name one in {VARIABLE}")


def _with(found: Merged, document: Document, path: Path) -> Merged:
    folder = path.absolute().parent
    clusters = _once(path, "clusters", [(e.name, e.cluster) for e in document.clusters or ()])
    users = _once(path, "users", [(e.name, e.user) for e in document.users or ()])
    contexts = _once(path, "contexts", [(e.name, e.context) for e in document.contexts or ()])
    return Merged(
        where=found.where,
        clusters={name: _cluster(each, folder) for name, each in clusters.items()} | found.clusters,
        users={name: _user(each, folder) for name, each in users.items()} | found.users,
        contexts=contexts | found.contexts,
        current_context=found.current_context or document.current_context or "",
    )


def _once(path: Path, kind: str, entries: list[tuple[str, T]]) -> dict[str, T]:
    """Return entries by name; raises SettingsInvalid where a file has a name twice."""
    found: dict[str, T] = {}
    for name, entry in entries:
        if name in found:
            raise _unreadable(path, f"{kind}: the name {name!r} stands there twice")
        found[name] = entry
    return found


def _cluster(cluster: Cluster, folder: Path) -> Cluster:
    return msgspec.structs.replace(
        cluster, certificate_authority=_relative_to(folder, cluster.certificate_authority)
    )


def _user(user: User, folder: Path) -> User:
    command = user.exec
    if command is not None and os.sep in command.command:
        # A name without a folder is searched for on PATH.
        command = msgspec.structs.replace(command, command=str(folder / command.command))
    return msgspec.structs.replace(
        user,
        client_certificate=_relative_to(folder, user.client_certificate),
        client_key=_relative_to(folder, user.client_key),
        token_file=_relative_to(folder, user.token_file),
        exec=command,
    )


def _relative_to(folder: Path, path: str | None) -> str | None:
    return str(folder / path) if path else path
