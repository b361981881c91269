# SPDX-License-Identifier: Apache-2.0
"""`python -m gpupack_images`."""

from gpupack_images.cli import main

main(prog_name="python -m gpupack_images")
