# SPDX-License-Identifier: Apache-2.0
"""One connection to an API server, from the kubeconfig and variables.

context ─► cluster, user, namespace                       checked as a whole: every error is named
no context and no cluster ─► the pod's service account, where this is a pod
                         ─► KUBERNETES_MASTER
"""

import base64
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gpupack_kubeclient.environment import SettingsInvalid
from gpupack_kubeclient.kubeconfig import (
    fields,
    files,
    impersonation,
    plugin_policy,
    proxies,
    sign_in,
)
from gpupack_kubeclient.kubeconfig.exec_command import Command
from gpupack_kubeclient.kubeconfig.fields import Cluster, Context, KubeconfigUnreadable, User
from gpupack_kubeclient.kubeconfig.files import Merged
from gpupack_kubeclient.kubeconfig.impersonation import Headers
from gpupack_kubeclient.kubeconfig.sign_in import SignIn, TokenFile

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts the token of a pod's service account and the cluster's CA certificate."""

HOST: Final = "KUBERNETES_SERVICE_HOST"
PORT: Final = "KUBERNETES_SERVICE_PORT"
MASTER: Final = "KUBERNETES_MASTER"
NAMESPACE: Final = "POD_NAMESPACE"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An API server, and how to call it.

    Attributes:
        server: address of the server, without a slash at the end.
        namespace: the default namespace of the caller.
        sign_in: how the caller signs in.
        authority: PEM of the CAs, or a file that others renew; empty: the system's.
        insecure: the server's certificate is not verified.
        server_name: the name that the server's certificate has to be for; empty: the address.
        proxy: address of the proxy; empty: none.
        impersonation: headers that impersonate another user.
        in_cluster: the caller is the service account of this pod.
    """

    server: str
    namespace: str
    sign_in: SignIn
    authority: bytes | Path = b""
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    impersonation: Headers = ()
    in_cluster: bool = False

    @property
    def uses_files(self) -> bool:
        """Whether a part of it is in files that other programs renew."""
        return isinstance(self.authority, Path) or self.sign_in.uses_files


def target_of(
    environ: Mapping[str, str], *, context: str | None = None, account: Path = ACCOUNT
) -> Target:
    """Return the connection of a context; None: the current one.

    Raises:
        SettingsInvalid: there is none, or a part of it cannot be used; the text names it.
    """
    found = files.merged(environ)
    name = context or found.current_context
    if name:
        return _of_context(found, name, environ, account)
    if environ.get(HOST):
        return _of_pod(environ, account)
    if server := environ.get(MASTER):
        return Target(
            server=_address(server),
            namespace="default",
            sign_in=SignIn(),
            proxy=_proxy(server, Cluster(), environ),
        )
    raise _invalid(found, _nothing(found, environ))


def _nothing(found: Merged, environ: Mapping[str, str]) -> str:
    if not files.exist(environ):
        return "there is no such file"
    if found.empty:
        return "it is empty, or is not a kubeconfig: it has no clusters, users or contexts"
    return "it names no current-context; choose one by --context"


def _invalid(found: Merged, why: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"no kubeconfig can be read from {found.where}: {why}; name one in {files.VARIABLE}"
    )


def _of_context(found: Merged, name: str, environ: Mapping[str, str], account: Path) -> Target:
    chosen = found.contexts.get(name)
    if chosen is None:
        raise _unusable(found, f"there is no context {name!r}")
    if chosen.cluster not in found.clusters:
        raise _unusable(found, f"context {name!r} has no cluster: there is no {chosen.cluster!r}")
    if chosen.user not in found.users:
        raise _unusable(found, f"context {name!r} has no user: there is no {chosen.user!r}")
    cluster, user = found.clusters[chosen.cluster], found.users[chosen.user]
    problems = [
        *(f"cluster {chosen.cluster!r}: {each}" for each in _problems(cluster, environ)),
        *(f"user {chosen.user!r}: {each}" for each in sign_in.problems_of(user)),
    ]
    if problems:
        raise _unusable(found, "; ".join(problems))
    try:
        return _made(chosen, cluster, user, environ, account)
    except (KubeconfigUnreadable, proxies.ProxyUnusable) as error:
        raise _unusable(found, f"context {name!r}: {error}") from error


def _unusable(found: Merged, why: str) -> SettingsInvalid:
    return SettingsInvalid(f"the kubeconfig {found.where} cannot be used: {why}")


def _problems(cluster: Cluster, environ: Mapping[str, str]) -> Iterator[str]:
    server = cluster.server or environ.get(MASTER)
    if not server:
        yield "it names no server"
    elif not _is_address(server):
        yield f"server: {server!r} is no address; write https://HOST:PORT"
    has_authority = cluster.certificate_authority or cluster.certificate_authority_data
    if cluster.certificate_authority and cluster.certificate_authority_data:
        yield "certificate-authority and certificate-authority-data stand there both"
    if has_authority and cluster.insecure_skip_tls_verify:
        yield "insecure-skip-tls-verify stands next to a certificate-authority; leave one out"


def _made(
    chosen: Context, cluster: Cluster, user: User, environ: Mapping[str, str], account: Path
) -> Target:
    server = _address(cluster.server or environ[MASTER])
    secure = server.startswith("https://")
    authority = _authority(cluster)
    signed = sign_in.of_user(
        user,
        environ=environ,
        cluster=_exec_cluster(server, cluster, authority),
        id_token=lambda: _id_token(environ, chosen.user),
    )
    if secure and signed == SignIn():
        raise KubeconfigUnreadable(
            f"user {chosen.user!r} has no credentials; kubectl asks for a name and a password, "
            "gpupack does not"
        )
    if isinstance(signed.bearer, Command):
        plugin_policy.require_allowed(signed.bearer.spec, environ)
    return Target(
        server=server,
        namespace=chosen.namespace or _namespace_of_pod(environ, account) or "default",
        # Credentials are never sent in the clear.
        sign_in=signed if secure else SignIn(),
        authority=authority if secure else b"",
        insecure=bool(cluster.insecure_skip_tls_verify),
        server_name=cluster.tls_server_name or "",
        proxy=_proxy(server, cluster, environ),
        impersonation=impersonation.headers_of(user),
    )


def _address(server: str) -> str:
    """Return the address; without a scheme it is http, as for kubectl. Drop query and fragment."""
    parts = urlsplit(server if "://" in server else f"http://{server}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(_address(server))
        return parts.scheme in proxies.PORTS and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _proxy(server: str, cluster: Cluster, environ: Mapping[str, str]) -> str:
    if cluster.proxy_url:
        return proxies.checked(cluster.proxy_url, "proxy-url")
    return proxies.proxy_for(_address(server), environ)


def _authority(cluster: Cluster) -> bytes | Path:
    if cluster.certificate_authority_data:
        return fields.decoded(cluster.certificate_authority_data, "certificate-authority-data")
    return Path(cluster.certificate_authority) if cluster.certificate_authority else b""


def _exec_cluster(server: str, cluster: Cluster, authority: bytes | Path) -> dict[str, Any]:
    """Return the data about the cluster for a credential command; raises KubeconfigUnreadable."""
    try:
        trusted = authority.read_bytes() if isinstance(authority, Path) else authority
    except OSError as error:
        raise KubeconfigUnreadable(
            f"certificate-authority: {authority!s}: {error.strerror}"
        ) from error
    extensions = {each.name: each.extension for each in cluster.extensions or ()}
    described: dict[str, Any] = {
        "server": server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(trusted).decode(),
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
    }
    described["config"] = extensions.get(fields.EXEC_EXTENSION)
    return {name: value for name, value in described.items() if value}


def _id_token(environ: Mapping[str, str], user: str) -> str:
    """Return the ID token that kubectl wrote last."""
    provider = files.merged(environ).users[user].auth_provider
    return ((provider and provider.config) or {}).get("id-token", "")


def server_of_pod(environ: Mapping[str, str]) -> str:
    """Return the API server's address that the kubelet gives to a pod."""
    host = environ[HOST]
    host = f"[{host}]" if ":" in host else host
    return f"https://{host}:{environ.get(PORT) or '443'}"


def _of_pod(environ: Mapping[str, str], account: Path) -> Target:
    server = server_of_pod(environ)
    try:
        return Target(
            server=server,
            namespace=_namespace_of_pod(environ, account) or "default",
            sign_in=SignIn(TokenFile(account / "token")),
            authority=account / "ca.crt",
            proxy=_proxy(server, Cluster(), environ),
            in_cluster=True,
        )
    except proxies.ProxyUnusable as error:
        raise SettingsInvalid(str(error)) from error


def _namespace_of_pod(environ: Mapping[str, str], account: Path) -> str:
    """Return the namespace of this pod; empty: this process runs in no pod."""
    if not (environ.get(HOST) and environ.get(PORT) and (account / "token").is_file()):
        return ""
    if named := environ.get(NAMESPACE):
        return named
    try:
        return (account / "namespace").read_text().strip()
    except (OSError, ValueError):
        return ""
