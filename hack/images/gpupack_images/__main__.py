# SPDX-License-Identifier: Apache-2.0
"""Entry point of `python -m gpupack_images`."""

from gpupack_images.cli import main

raise SystemExit(main())
