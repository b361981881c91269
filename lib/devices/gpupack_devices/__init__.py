# SPDX-License-Identifier: Apache-2.0
"""Units, GPU models, MIG profiles and NVLink cliques, by the standard library alone."""
