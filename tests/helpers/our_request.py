# SPDX-License-Identifier: Apache-2.0
"""The request that `kubectl create token x` makes, as gpupack makes it: one process.

With `--serve` every line of its input is such a call, which a process of its own makes; so what all
of them import is imported once.
"""

import asyncio
import json
import os
import pathlib
import sys

from gpupack_kubeclient.client import Api
from gpupack_kubeclient.environment import SettingsInvalid
from gpupack_kubeclient.errors import KubeError


async def call(context):
    async with Api.connect(os.environ, context=context) as api:
        where = (await api.identity()).namespace
        await api.post(f"/api/v1/namespaces/{where}/serviceaccounts/x/token", {}, dict)


def called(context):
    """Return what went wrong; empty: nothing."""
    try:
        asyncio.run(call(context or None))
    except (KubeError, SettingsInvalid) as error:
        return str(error)
    return ""


def serve():
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            os.environ.clear()
            os.environ.update(asked["environ"])
            os.chdir(asked["folder"])
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            with pathlib.Path(asked["errors"]).open("w") as errors:
                os.dup2(errors.fileno(), 2)
                sys.stderr.write(called(asked["context"]))
                sys.stderr.flush()
            os._exit(0)
        os.waitpid(child, 0)
        print("done", flush=True)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        sys.exit(called(*sys.argv[1:2] or [""]) or 0)
