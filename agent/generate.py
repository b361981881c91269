# SPDX-License-Identifier: Apache-2.0
"""Generate gpupack_agent/api/*_pb2* from the .proto files there: `python agent/generate.py`.

grpcio-tools brings the compiler and types for messages, mypy-protobuf the types for services.
"""

import pathlib
import sys

from grpc_tools import protoc

HERE = pathlib.Path(__file__).parent
PROTOS = ("gpupack_agent/api/deviceplugin.proto", "gpupack_agent/api/podresources.proto")
HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205, D212, D415, E501, I001, N802, PYI021, UP007, UP035, UP036
# fmt: off
"""


def main() -> int:
    """Compile and mark what was generated, so that linters leave it alone."""
    flags = [f"--{output}_out={HERE}" for output in ("python", "pyi", "grpc_python")]
    flags.append(f"--mypy_grpc_out=async_only,quiet:{HERE}")
    status: int = protoc.main(["protoc", f"-I{HERE}", *flags, *PROTOS])
    for generated in sorted((HERE / "gpupack_agent/api").glob("*_pb2*.py*")):
        text = generated.read_text()
        if not text.startswith(HEADER):
            generated.write_text(HEADER + text)
    return status


if __name__ == "__main__":
    sys.exit(main())
