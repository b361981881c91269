# SPDX-License-Identifier: Apache-2.0
"""Jobs drawn from a trace by a seed."""
