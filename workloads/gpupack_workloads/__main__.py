# SPDX-License-Identifier: Apache-2.0
"""`python -m gpupack_workloads`."""

from gpupack_workloads.cli import main

if __name__ == "__main__":
    main(prog_name="python -m gpupack_workloads")
