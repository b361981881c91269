# SPDX-License-Identifier: Apache-2.0
"""One plot a file: each makes a Figure of digests and keeps no state."""
