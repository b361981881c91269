# SPDX-License-Identifier: Apache-2.0
"""The release: the namespace of gpupack, and the Secrets with its certificates."""

from typing import Final

from gpupack.cluster import release
from gpupack.cluster.release import Release
from gpupack.errors import ServerNotFound
from gpupack_cli.errors import SettingsWrong
from gpupack_cli.session import Session
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Refused
from gpupack_kubeclient.resources import CONFIG_MAPS

OPTION: Final = "--system-namespace"


async def found_release(session: Session, api: Api) -> Release:
    """Return the only release, or the one that the session names.

    Raises:
        SettingsWrong: there is none or there are several, or they cannot be listed.
        Unreachable: the API server does not answer.
    """
    named = session.system_namespace
    if named and not release.is_namespace(named):
        raise SettingsWrong(
            f"{named!r} is no name of a namespace; {OPTION} and {release.VARIABLE} name where "
            "gpupack is installed"
        )
    try:
        _, items = await api.page(
            CONFIG_MAPS, namespace=release.WHERE, labelSelector=release.SELECTOR
        )
    except Refused as error:
        if named:
            return Release(named)
        raise SettingsWrong(str(release.unreadable(error.said, option=OPTION))) from error
    try:
        published = release.releases(each.data for each in items)
        return release.chosen(published, namespace=named, option=OPTION)
    except ServerNotFound as error:
        raise SettingsWrong(str(error)) from error
