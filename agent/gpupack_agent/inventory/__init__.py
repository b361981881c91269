# SPDX-License-Identifier: Apache-2.0
"""What GPUs a node has: one interface (`base`), two backends (`simulated`, `nvml`)."""
