# SPDX-License-Identifier: Apache-2.0
"""The search of a command for the release."""

import pytest
from fake_api import ApiServer, connected

from gpupack.cluster.release import Release
from gpupack_cli.errors import ConfigurationInvalid
from gpupack_cli.release import find_release
from gpupack_cli.session import Session

CONFIG_MAPS = "/api/v1/namespaces/kube-public/configmaps"


@pytest.fixture
def server():
    return ApiServer()


@pytest.fixture
def find(server):
    async def find(named=""):
        async with connected(server.app()) as (api, _):
            return await find_release(Session(environ={}, system_namespace=named), api)

    return find


def publish(server, namespace):
    name = f"gpupack-{namespace}"
    data = {"namespace": namespace, "apiCertificate": "mine"}
    server.put(f"{CONFIG_MAPS}/{name}", {"metadata": {"name": name}, "data": data})


async def test_the_only_release_is_found_in_any_namespace(server, find):
    publish(server, "gpu-tools")
    assert await find() == Release("gpu-tools", api_secret="mine")


async def test_two_releases_are_reported_by_name(server, find):
    publish(server, "gpu-tools")
    publish(server, "other")
    with pytest.raises(
        ConfigurationInvalid, match=r"\(gpu-tools, other\).*--system-namespace or GPUPACK"
    ):
        await find()
    assert await find("other") == Release("other", api_secret="mine")


async def test_a_caller_that_may_not_list_releases_has_to_name_the_namespace(server, find):
    server.forbidden.add(CONFIG_MAPS)
    named = "cannot be listed .Forbidden.*--system-namespace or GPUPACK_SYSTEM_NAMESPACE"
    with pytest.raises(ConfigurationInvalid, match=named):
        await find()
    assert await find("gpu-tools") == Release("gpu-tools")


@pytest.mark.parametrize("name", ["a/b", "..", "A", "a" * 64])
async def test_an_invalid_namespace_is_refused(find, name):
    with pytest.raises(ConfigurationInvalid, match="is not a valid namespace"):
        await find(name)
