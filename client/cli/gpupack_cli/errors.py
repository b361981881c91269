# SPDX-License-Identifier: Apache-2.0
"""All errors that a command can end with, and their exit statuses.

    CliError                     1
    ├── JobFailed                the exit code of the job
    ├── ChecksFailed             1: doctor found something broken
    ├── ConversionIncomplete     1: convert dropped something that matters
    ├── UsageInvalid             2: options that exclude each other, as for click's own errors
    ├── InputInvalid            65: a file or an object that cannot be used
    ├── ObjectNotFound          66: no such job, node or GPU
    ├── ClusterUnavailable      69: the Kubernetes API server does not answer
    ├── RestUnavailable         69: the REST API is missing, or does not answer
    ├── Internal                70: a bug in the command itself
    ├── PermissionDenied        77: a permission is missing
    │   └── Unauthenticated       the REST API does not accept the caller's credentials
    └── ConfigurationInvalid    78: no kubeconfig, or one that cannot be used
    CannotWrite                 74: of gpupack_terminal, the output accepts no more data
    Interrupted                130: Ctrl-C
    PipeClosed                 141: of gpupack_terminal, the reader of the output has ended
    Terminated                 143: SIGTERM, where a job is followed

The numbers are those of sysexits.h.
"""

import re
from typing import ClassVar, Final

from gpupack_crds.errors import LifecycleRefused
from gpupack_kubeclient import errors as kube
from gpupack_kubeclient.environment import SettingsInvalid

INTERRUPTED = 130
TERMINATED = 143

_READS_NODES: Final = re.compile(r'cannot (get|list|watch) resource "gpunodes"')

_NAMESPACE: Final = re.compile(r"/namespaces/([^/\s]+)/[^/\s]+/[^/\s]+")
"""The namespace in the path of an object's call."""


class CliError(Exception):
    """Root of all errors; the text is one sentence for users, with what to do."""

    exit_status: ClassVar[int] = 1

    @property
    def status(self) -> int:
        """The exit status of the command."""
        return self.exit_status


class JobFailed(CliError):
    """The job that was followed did not succeed.

    Args:
        message: how the job ended; empty: it was printed already.
        status: exit code of its worker; 1 where it is unknown.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self._status = status

    @property
    def status(self) -> int:
        """The exit code of the job's worker."""
        return self._status


class ChecksFailed(CliError):
    """A part of the installation is broken."""


class ConversionIncomplete(CliError):
    """A part of the input has no equivalent; the rest was converted."""


class UsageInvalid(CliError):
    """Options that exclude each other."""

    exit_status = 2


class InputInvalid(CliError):
    """A file, or an object, that cannot be used."""

    exit_status = 65


class ObjectNotFound(CliError):
    """There is no such object."""

    exit_status = 66


class ClusterUnavailable(CliError):
    """The API server does not answer."""

    exit_status = 69


class RestUnavailable(CliError):
    """The REST API cannot be reached."""

    exit_status = 69


class Internal(CliError):
    """A bug in the command itself."""

    exit_status = 70


class PermissionDenied(CliError):
    """The caller lacks a permission."""

    exit_status = 77


class Unauthenticated(PermissionDenied):
    """The REST API does not accept the caller's credentials."""


class ConfigurationInvalid(CliError):
    """The command cannot determine the cluster."""

    exit_status = 78


def from_kube_error(error: kube.KubeError | SettingsInvalid | LifecycleRefused) -> CliError:
    """Return an error of the API server in the form for users."""
    match error:
        case SettingsInvalid():
            return ConfigurationInvalid(str(error))
        case LifecycleRefused():
            return InputInvalid(str(error))
        case kube.Unreachable():
            return ClusterUnavailable(f"{error}; check that the cluster is up, and KUBECONFIG")
        case kube.Refused():
            return _from_refusal(error)
        case kube.NotSignedIn():
            return PermissionDenied(str(error))
        case _:
            return CliError(str(error))


def _from_refusal(error: kube.Refused) -> CliError:
    match error.status:
        case 401:
            return PermissionDenied(
                f"the API server does not accept your credentials ({error.said}); sign in again, "
                "or use another context"
            )
        case 403:
            fix = "request that permission from an administrator of the cluster"
            return PermissionDenied(f"{error.said}; {fix}{_node_permission_hint(error.said)}")
        case 404:
            return ObjectNotFound(_not_found(error))
        case 400 | 422:
            return InputInvalid(error.said)
        case status if status == 429 or status >= 500:  # noqa: PLR2004 - of HTTP
            asked = error.retry_after_seconds
            when = "" if asked is None else f" in {asked:g} s"
            return ClusterUnavailable(
                f"the API server cannot answer now ({error.said}); try again{when}"
            )
        case _:
            taken = "already exists" in error.said
            fix = "; choose another --name, or delete that one"
            return InputInvalid(error.said + fix) if taken else CliError(error.said)


def _node_permission_hint(said: str) -> str:
    """Return a hint: GPUNodes are cluster-scoped, which a tenant's roles do not cover."""
    found = _READS_NODES.search(said)
    if found is None:
        return ""
    hint = (
        ", a ClusterRoleBinding to gpupack-view; `gpupack top`, `nodes` and `gpu show` need no "
        "such right where the REST API can be reached"
    )
    # One node is also read to be changed.
    writes = "; `gpupack drain`, `gpu cordon` and `gpu uncordon` also need the right to patch it"
    return hint + writes if found[1] == "get" else hint


def _not_found(error: kube.Refused) -> str:
    """Return text for a missing object; for an unserved kind the server's message is short."""
    if "could not find the requested resource" in error.said:
        return f"gpupack is not installed in this cluster: {error}; see docs/install.md"
    where = _NAMESPACE.search(str(error))
    return f"{error.said} in namespace {where[1]}; -n names another one" if where else error.said
