# SPDX-License-Identifier: Apache-2.0
"""The fields of a kubeconfig, as types.

Unknown fields are ignored and values of a wrong type are refused, both as kubectl does.
"""

import base64
import binascii
import functools
from typing import Any, Final

import msgspec

EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The extension of a cluster that a credential command gets as its configuration."""


class KubeconfigUnreadable(ValueError):
    """A file is not a valid kubeconfig; the text says where and why."""


class Extension(msgspec.Struct):
    """Data of another program."""

    name: str = ""
    extension: Any = None


class Cluster(msgspec.Struct, rename="kebab"):
    """The settings of connections to an API server."""

    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[Extension] | None = None


class Variable(msgspec.Struct):
    """An environment variable of a credential command."""

    name: str = ""
    value: str = ""


class Exec(msgspec.Struct, rename="camel"):
    """A command that issues credentials."""

    command: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(msgspec.Struct):
    """A way to sign in that is built into kubectl."""

    name: str = ""
    config: dict[str, str] | None = None


class User(msgspec.Struct, rename="kebab"):
    """The settings with which a client signs in."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    as_user: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str] | None] | None = None
    username: str | None = None
    password: str | None = None
    auth_provider: AuthProvider | None = None
    exec: Exec | None = None


class Context(msgspec.Struct):
    """A cluster, a user and a namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class NamedCluster(msgspec.Struct):
    """A cluster's entry."""

    name: str = ""
    cluster: Cluster = msgspec.field(default_factory=Cluster)


class NamedUser(msgspec.Struct):
    """A user's entry."""

    name: str = ""
    user: User = msgspec.field(default_factory=User)


class NamedContext(msgspec.Struct):
    """A context's entry."""

    name: str = ""
    context: Context = msgspec.field(default_factory=Context)


class Document(msgspec.Struct, rename="kebab"):
    """One kubeconfig file."""

    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None
    current_context: str | None = None


def parsed(content: bytes) -> Document:
    """Parse one file's content.

    Raises:
        KubeconfigUnreadable: the content is not YAML, or a field has a wrong type.
    """
    import yaml  # noqa: PLC0415 - components in a cluster read no kubeconfig

    try:
        raw = yaml.load(content, Loader=_loader())  # noqa: S506 - derived from the safe loader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise KubeconfigUnreadable(f"it is no YAML: {_on_one_line(error)}") from error
    if raw is None:
        return Document()
    if not isinstance(raw, dict):
        raise KubeconfigUnreadable("it holds no fields with values, as a kubeconfig does")
    try:
        return msgspec.convert(raw, Document)
    except (msgspec.ValidationError, RecursionError) as error:
        raise KubeconfigUnreadable(str(error)) from error


def decoded(data: str | None, name: str) -> bytes:
    """Decode a `-data` field; empty: the field is absent.

    Raises:
        KubeconfigUnreadable: the data is not base64.
    """
    try:
        return base64.b64decode("".join((data or "").split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise KubeconfigUnreadable(f"{name} is no base64: {error}") from error


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


@functools.cache
def _loader() -> Any:
    """Return a loader that reads dates as text, as Kubernetes does; libyaml is ten times faster."""
    import yaml  # noqa: PLC0415 - as above

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        pass

    Loader.yaml_implicit_resolvers = {
        first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    return Loader
