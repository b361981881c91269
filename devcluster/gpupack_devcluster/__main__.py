# SPDX-License-Identifier: Apache-2.0
"""`python -m gpupack_devcluster`."""

from gpupack_devcluster.cli import main

main()
