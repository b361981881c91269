# SPDX-License-Identifier: Apache-2.0
"""One command in each file, as `command`."""
