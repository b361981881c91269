# SPDX-License-Identifier: Apache-2.0
"""Entry point of `python -m gpupack_simulator`."""

from gpupack_simulator.cli import main

if __name__ == "__main__":
    main()
