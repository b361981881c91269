# SPDX-License-Identifier: Apache-2.0
"""Run inside an agent's pod: print the tickets that the kubelet lists for the named pods.

Arguments: NAMESPACE/NAME ...; prints {"NAMESPACE/NAME": [ticket, ...]}.
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
            by_container = await kubelet.tickets(namespace, name, "gpupack.dev/gpu")
            listed[pod] = [ticket for ids in by_container.values() for ticket in ids]
    print(json.dumps(listed))


asyncio.run(main())
