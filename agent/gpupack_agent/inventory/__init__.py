# SPDX-License-Identifier: Apache-2.0
"""The list of a node's GPUs: one interface (`base`), two backends (`simulated`, `driver`)."""
