# SPDX-License-Identifier: Apache-2.0
"""Run inside an agent's pod: print the device tokens that the kubelet lists for the named pods.

Arguments: NAMESPACE/NAME ...; prints {"NAMESPACE/NAME": [token, ...]}.
"""

import asyncio
import json
import pathlib
import sys

from gpupack_agent.podresources import PodResources

SOCKET = pathlib.Path("/var/lib/kubelet/pod-resources/kubelet.sock")


async def main() -> None:
    listed = {}
    async with PodResources.connect(SOCKET) as kubelet:
        for pod in sys.argv[1:]:
            namespace, name = pod.split("/")
            by_container = await kubelet.tokens(namespace, name, "gpupack.dev/gpu")
            listed[pod] = [token for ids in by_container.values() for token in ids]
    print(json.dumps(listed))


asyncio.run(main())
