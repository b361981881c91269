# SPDX-License-Identifier: Apache-2.0
"""Reading of what the checks need; a kind that may not be read does not stop the others."""

import asyncio
import http
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from gpupack.cluster.release import SERVICE, Release
from gpupack_cli.doctor import views
from gpupack_cli.doctor.cluster_state import ClusterState, Probe, Read
from gpupack_cli.doctor.needed_secrets import METRICS as METRICS_ACCOUNT
from gpupack_cli.doctor.needed_secrets import needed_secrets
from gpupack_cli.listing import list_objects
from gpupack_crds import names
from gpupack_crds.kinds import GPUCOHORTS, GPUNODES, GPUQUOTAS
from gpupack_kubeclient import errors, objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import NODES, PODS, PRIORITY_CLASSES, SERVICES, Resource
from gpupack_restapi import PREFIX

T = TypeVar("T", bound=objects.Object)

KINDS: Final = ("gpujobs", "gpunodes", "gpuquotas", "gpucohorts")
PRIORITY_CLASS: Final = "gpupack-worker"
METRICS: Final = "/api/v1/namespaces/{namespace}/pods/https:{pod}:8443/proxy/metrics"
"""Path of the leading pod's metrics: it writes the Service's endpoints, and the proxy has none."""
REST: Final = (
    f"/api/v1/namespaces/{{namespace}}/services/https:{SERVICE}:https/proxy{PREFIX}/health/ready"
)
MAX_DETAIL_CHARACTERS: Final = 200


async def read_cluster(api: Api, version: str, release: Release) -> ClusterState:
    """Read everything once.

    Args:
        api: the API server.
        version: version of this command.
        release: the installation.

    Raises:
        Unreachable: the API server does not answer.
        SettingsInvalid: the connection's settings are not valid.
    """
    # The first request is alone, so that a server that does not answer is reported once.
    server = await api.document("/version", views.ServerVersion)
    system = release.namespace
    crd_names = [f"{kind}.{names.GROUP}" for kind in KINDS]
    found = await asyncio.gather(
        _each(api, views.CRDS, crd_names),
        _all(api, views.DEPLOYMENTS, system),
        _all(api, views.DAEMON_SETS, system),
        _all(api, PODS, system),
        _all(api, PODS, selectors={"fieldSelector": "status.phase=Pending"}),
        _all(api, views.LEASES, system),
        _all(api, views.POLICIES),
        _all(api, views.BINDINGS),
        _webhooks(api),
        _each(api, PRIORITY_CLASSES, [PRIORITY_CLASS]),
        _each(api, views.ACCOUNTS, [METRICS_ACCOUNT], system),
        _all(api, NODES),
        _all(api, GPUNODES),
        _all(api, views.GPUJOBS),
        _all(api, GPUQUOTAS),
        _all(api, GPUCOHORTS),
        _probe(api, REST.format(namespace=system)),
    )
    fields = (
        "crds",
        "deployments",
        "daemon_sets",
        "pods",
        "pending",
        "leases",
        "policies",
        "bindings",
        "webhooks",
        "priority_classes",
        "accounts",
        "nodes",
        "gpu_nodes",
        "gpu_jobs",
        "quotas",
        "cohorts",
        "rest",
    )
    read: dict[str, Any] = dict(zip(fields, found, strict=True))
    metrics = await _metrics(api, read["leases"], system)
    parts = (*read["deployments"].items, *read["daemon_sets"].items)
    needed = needed_secrets(parts, read["accounts"].items, release)
    secrets = await _each(api, views.SECRETS, [each.name for each in needed], system)
    about: dict[str, Any] = {"version": version, "server": server, "release": release}
    return ClusterState(now=api.clock.now(), metrics=metrics, secrets=secrets, **about, **read)


async def _all(
    api: Api,
    resource: Resource[T],
    namespace: str = "",
    selectors: Mapping[str, str] | None = None,
) -> Read[T]:
    try:
        return Read(
            tuple(await list_objects(api, resource, namespace=namespace, selectors=selectors))
        )
    except errors.NotFound:
        return Read()
    except errors.KubeError as error:
        return Read(refused=_why(error))


async def _each(
    api: Api, resource: Resource[T], wanted: Iterable[str], namespace: str = ""
) -> Read[T]:
    """Read objects by name: a caller that may not list a kind may often get these."""
    found = list[T]()
    for name in wanted:
        try:
            found.append(await api.get(resource, name, namespace=namespace))
        except errors.NotFound:
            continue
        except errors.KubeError as error:
            return Read(tuple(found), refused=_why(error))
    return Read(tuple(found))


async def _webhooks(api: Api) -> Read[tuple[views.Webhook, bool]]:
    found = list[tuple[views.Webhook, bool]]()
    for kind in (views.VALIDATING, views.MUTATING):
        read = await _all(api, kind)
        if read.refused:
            return Read(refused=read.refused)
        for each in (hook for item in read.items for hook in item.webhooks):
            service = each.client_config.service
            if each.failure_policy == "Fail" and service is not None:
                found.append((each, await _service_exists(api, service)))
    return Read(tuple(found))


async def _service_exists(api: Api, service: views.WebhookService) -> bool:
    try:
        await api.get(SERVICES, service.name, namespace=service.namespace)
    except errors.NotFound:
        return False
    except errors.KubeError:
        return True
    return True


async def _metrics(api: Api, leases: Read[views.LeaseRenewal], namespace: str) -> Probe:
    lease = leases.named(names.SCHEDULER_LEASE)
    if lease is None or not lease.spec.holder_identity:
        return Probe(detail="gpupack-scheduler has no leader")
    pod = lease.spec.holder_identity.partition("_")[0]
    return await _probe(api, METRICS.format(namespace=namespace, pod=pod))


async def _probe(api: Api, path: str) -> Probe:
    """Call a component through the API server's proxy, which removes the token: it may refuse."""
    try:
        answer = await api.document(path, object, accept="*/*")
    except errors.Refused as error:
        # The API server accepts the caller, or the command would have ended: the component refuses.
        by_component = error.status == http.HTTPStatus.UNAUTHORIZED
        return Probe(error.status, error.said[:MAX_DETAIL_CHARACTERS], by_component)
    except errors.KubeError as error:
        return Probe(0, str(error)[:MAX_DETAIL_CHARACTERS], by_component=False)
    return Probe(200, str(answer)[:MAX_DETAIL_CHARACTERS], by_component=True)


def _why(error: errors.KubeError) -> str:
    return (error.said if isinstance(error, errors.Refused) else str(error))[:MAX_DETAIL_CHARACTERS]
