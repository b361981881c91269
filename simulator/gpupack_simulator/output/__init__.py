# SPDX-License-Identifier: Apache-2.0
"""What is made from runs: figures, tables, plots, the report."""
