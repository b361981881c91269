# SPDX-License-Identifier: Apache-2.0
"""Makes queue_world importable: tests have no packages, so helpers need a place on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
