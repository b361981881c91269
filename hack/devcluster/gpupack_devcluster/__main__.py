# SPDX-License-Identifier: Apache-2.0
"""Entry point of `python -m gpupack_devcluster`."""

from gpupack_devcluster.cli import main

main()
