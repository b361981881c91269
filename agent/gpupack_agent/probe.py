# SPDX-License-Identifier: Apache-2.0
"""The program of the kubelet's probes: `python -m gpupack_agent.probe [--ready]`.

It exits with 0 if the agent on this node is alive, and with --ready only if its plugins are also
registered. It imports very little, for the reason given in `liveness`.
"""

import os
import pathlib
import sys

from gpupack_agent import liveness


def main() -> None:
    """Check the file that GPUPACK_PROBE_FILE names."""
    path = pathlib.Path(os.environ.get("GPUPACK_PROBE_FILE") or liveness.FILE)
    if problem := liveness.problem(path, ready="--ready" in sys.argv[1:]):
        sys.exit(f"Error: {problem}")


if __name__ == "__main__":
    main()
