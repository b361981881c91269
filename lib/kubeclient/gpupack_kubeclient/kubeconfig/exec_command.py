# SPDX-License-Identifier: Apache-2.0
"""Credentials that a command issues (`exec` of a kubeconfig's user).

The command gets an ExecCredential in KUBERNETES_EXEC_INFO and writes one to its stdout. Its stderr
is for the user and is passed through.
"""

import dataclasses
import datetime as dt
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpupack_kubeclient.kubeconfig.fields import Exec
from gpupack_kubeclient.kubeconfig.presented import NoCredentials, Presented

GROUP: Final = "client.authentication.k8s.io"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
MODES: Final = ("Never", "IfAvailable", "Always")
INFO: Final = "KUBERNETES_EXEC_INFO"


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A command with its input.

    Attributes:
        spec: the command as in the kubeconfig.
        environ: variables of this process.
        cluster: the data about the cluster that an ExecCredential carries.
    """

    spec: Exec
    environ: Mapping[str, str] = dataclasses.field(repr=False)
    cluster: Mapping[str, Any]


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: dt.datetime | None = None


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


def problems_of(spec: Exec) -> list[str]:
    """Return what is wrong with the fields."""
    found = []
    if not spec.command:
        found.append("exec has no command")
    if spec.api_version not in VERSIONS:
        found.append(f"exec.apiVersion: {spec.api_version!r}; use {' or '.join(VERSIONS)}")
    mode = spec.interactive_mode
    optional = spec.api_version != VERSIONS[0]
    if mode not in MODES and (mode or not optional):
        found.append(f"exec.interactiveMode: {mode!r}; use {', '.join(MODES)}")
    if any(not each.name for each in spec.env or ()):
        found.append("exec.env has a variable without a name")
    return found


def issued(command: Command) -> Presented:
    """Run the command; block until it ends.

    Raises:
        NoCredentials: the command cannot be run, fails, or writes no credentials.
    """
    program, interactive = _program(command), _is_interactive(command.spec)
    try:
        done = subprocess.run(  # noqa: S603 - the kubeconfig is the user's own
            [program, *(command.spec.args or ())],
            env=_environment(command, interactive=interactive),
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
        )
    except (OSError, ValueError) as error:
        raise _failed(command, f"cannot be run: {error}") from error
    if done.returncode:
        raise _failed(command, f"ended with status {done.returncode}")
    return _read(command, done.stdout)


def _program(command: Command) -> str:
    name = command.spec.command
    # The command's own `env` does not change where the command is found.
    found = shutil.which(name, path=command.environ.get("PATH", os.defpath))
    if found is None:
        hint = command.spec.install_hint.strip()
        raise _failed(command, f"is not found{f': {hint}' if hint else ''}")
    return found


def _is_interactive(spec: Exec) -> bool:
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if spec.interactive_mode == "Always" and not terminal:
        raise NoCredentials(
            f"the kubeconfig's command {spec.command} has interactiveMode Always, and standard "
            "input is no terminal"
        )
    return terminal and spec.interactive_mode != "Never"


def _environment(command: Command, *, interactive: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": interactive}
    if command.spec.provide_cluster_info:
        spec["cluster"] = command.cluster
    info = {"kind": "ExecCredential", "apiVersion": command.spec.api_version, "spec": spec}
    own = {each.name: each.value for each in command.spec.env or ()}
    return {**command.environ, **own, INFO: msgspec.json.encode(info).decode()}


def _read(command: Command, written: bytes) -> Presented:
    try:
        credential = msgspec.json.decode(written, type=_Credential)
    except msgspec.MsgspecError as error:
        raise _failed(command, f"wrote no ExecCredential: {error}") from error
    if credential.api_version != command.spec.api_version:
        raise _failed(
            command,
            f"wrote apiVersion {credential.api_version!r}, not {command.spec.api_version!r}",
        )
    status = credential.status or _Status()
    if not (status.token or status.client_certificate_data or status.client_key_data):
        raise _failed(command, "wrote neither a token nor a certificate")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise _failed(command, "wrote a certificate or a key alone")
    return Presented(
        authorization=f"Bearer {status.token}" if status.token else "",
        certificate=status.client_certificate_data.encode(),
        key=status.client_key_data.encode(),
        until=_aware(status.expiration_timestamp),
    )


def _aware(moment: dt.datetime | None) -> dt.datetime | None:
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=dt.UTC)


def _failed(command: Command, why: str) -> NoCredentials:
    return NoCredentials(
        f"the kubeconfig's command {command.spec.command} {why}; run it yourself, or sign in again"
    )
