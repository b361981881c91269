# SPDX-License-Identifier: Apache-2.0
"""Makes simulator_builders importable: tests have no packages, helpers need a place on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
