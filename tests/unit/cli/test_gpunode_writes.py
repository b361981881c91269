# SPDX-License-Identifier: Apache-2.0
"""Unknown node names."""

import pytest

NODES = "/apis/gpupack.dev/v1beta1/gpunodes"


@pytest.mark.parametrize(
    "command",
    [("gpu", "show", "nope"), ("drain", "nope", "--reason", "r"), ("gpu", "uncordon", "nope")],
    ids=lambda words: words[0],
)
async def test_a_missing_node_is_reported_with_the_existing_ones(server, command, capsys):
    for name in ("gpu-1", "gpu-2"):
        server.put(f"{NODES}/{name}", {"metadata": {"name": name}})
    assert await server.called(*command) == 66
    assert capsys.readouterr().err == (
        "gpupack: there is no node 'nope' with GPUs; there are: gpu-1, gpu-2\n"
    )


async def test_only_a_few_of_many_existing_nodes_are_listed(server, capsys):
    for number in range(1000):
        name = f"gpu-{number:04}"
        server.put(f"{NODES}/{name}", {"metadata": {"name": name}})
    assert await server.called("gpu", "show", "nope") == 66
    assert capsys.readouterr().err.endswith("gpu-0019 and 980 more\n")
