# SPDX-License-Identifier: Apache-2.0
"""The policy for credential commands in the user's kuberc, which kubectl obeys.

No other part of kuberc concerns a request: defaults and aliases are about kubectl's own commands.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from gpupack_kubeclient.kubeconfig.fields import Exec, KubeconfigUnreadable
from gpupack_kubeclient.kubeconfig.files import home

VARIABLE: Final = "KUBERC"
SWITCH: Final = "KUBECTL_KUBERC"


class _Entry(msgspec.Struct):
    command: str = ""


class _Preference(msgspec.Struct, rename="camel"):
    credential_plugin_policy: str = ""
    credential_plugin_allowlist: list[_Entry] | None = None


def require_allowed(command: Exec, environ: Mapping[str, str]) -> None:
    """Check a command against the policy.

    Raises:
        KubeconfigUnreadable: the command may not run, or the policy cannot be read.
    """
    path = _path(environ)
    if path is None:
        return
    preference = _read(path)
    match preference.credential_plugin_policy:
        case "" | "AllowAll":
            return
        case "Allowlist":
            listed = preference.credential_plugin_allowlist or []
            search = environ.get("PATH", os.defpath)
            wanted = shutil.which(command.command, path=search)
            if wanted and any(shutil.which(e.command, path=search) == wanted for e in listed):
                return
    raise KubeconfigUnreadable(
        f"{path} has credentialPluginPolicy {preference.credential_plugin_policy}, by which "
        f"{command.command} may not run"
    )


def _path(environ: Mapping[str, str]) -> Path | None:
    named = environ.get(VARIABLE, "")
    if named == "off" or environ.get(SWITCH, "").lower() == "false":
        return None
    path = Path(named) if named else home(environ) / ".kube" / "kuberc"
    return path if path.is_file() else None


def _read(path: Path) -> _Preference:
    import yaml  # noqa: PLC0415 - only where a command issues credentials

    try:
        documents = list(yaml.safe_load_all(path.read_bytes()))
        first: Any = next((each for each in documents if each), {})
        return msgspec.convert(first, _Preference)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise KubeconfigUnreadable(f"{path}: {error}") from error
