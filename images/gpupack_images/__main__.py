# SPDX-License-Identifier: Apache-2.0
"""`python -m gpupack_images`."""

from gpupack_images.cli import main

raise SystemExit(main())
