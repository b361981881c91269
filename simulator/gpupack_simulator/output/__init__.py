# SPDX-License-Identifier: Apache-2.0
"""Output of runs: figures, tables, plots, the report."""
