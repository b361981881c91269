# SPDX-License-Identifier: Apache-2.0
"""Write the OpenAPI document that the cluster's server answers with.

python -m gpupack_apiserver.openapi apiserver/openapi.json
"""

import pathlib
import sys

import msgspec
from litestar.serialization import encode_json
from prometheus_client import CollectorRegistry

from gpupack_apiserver.app import cluster_application


def render() -> bytes:
    """Return the document as text with an entry on each line."""
    schema = cluster_application({}, CollectorRegistry()).openapi_schema.to_schema()
    return msgspec.json.format(encode_json(schema), indent=2) + b"\n"


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_bytes(render())
