# SPDX-License-Identifier: Apache-2.0
"""The release: the namespace of gpupack, and the Secrets with its certificates."""

from typing import Final

from gpupack.cluster import release
from gpupack.cluster.release import Release
from gpupack.errors import ServerNotFound
from gpupack_cli.errors import ConfigurationInvalid
from gpupack_cli.session import Session
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Refused
from gpupack_kubeclient.resources import CONFIG_MAPS

OPTION: Final = "--system-namespace"


async def find_release(session: Session, api: Api) -> Release:
    """Return the only release, or the one that the session names.

    Raises:
        ConfigurationInvalid: there is none or there are several, or they cannot be listed.
        Unreachable: the API server does not answer.
    """
    named = session.system_namespace
    if named and not release.is_namespace(named):
        raise ConfigurationInvalid(
            f"{named!r} is not a valid namespace; give the namespace of gpupack by {OPTION} or "
            f"{release.VARIABLE}"
        )
    try:
        _, items = await api.page(
            CONFIG_MAPS, namespace=release.PUBLIC_NAMESPACE, labelSelector=release.SELECTOR
        )
    except Refused as error:
        if named:
            return Release(named)
        raise ConfigurationInvalid(
            str(release.unreadable_error(error.said, option=OPTION))
        ) from error
    try:
        published = release.parse_releases(each.data for each in items)
        return release.choose_release(published, namespace=named, option=OPTION)
    except ServerNotFound as error:
        raise ConfigurationInvalid(str(error)) from error
