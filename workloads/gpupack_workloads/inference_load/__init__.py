# SPDX-License-Identifier: Apache-2.0
"""Asks an inference server as many users would, and measures how long they wait.

options    what can be asked for (no torch)
arrivals   who asks what, and when: drawn before anything is sent
client     sends it, each at its time whatever became of the others; notes when tokens come
checks     the paged network, and answers that callers got, against the plain forward pass
summary    percentiles, and the result
session    starts a server of its own
elsewhere  measures one that runs already
"""

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.inference_load.options import LoadOptions
from gpupack_workloads.inference_server import part
from gpupack_workloads.results import Result


def run(options: LoadOptions) -> Result:
    """Check and measure a server of our own, or measure another; see `session` and `elsewhere`.

    Raises:
        BadArgument: a token was named, and no server that wants to see it.
        WorkloadError: a library is not installed; and as those two do.
    """
    if options.url is None and options.token_file is not None:
        raise BadArgument("--token-file is for the server of --url, which is not named")
    # Measuring another server needs no torch.
    name = "session" if options.url is None else "elsewhere"
    result: Result = part(f"inference_load.{name}").run(options)
    return result
