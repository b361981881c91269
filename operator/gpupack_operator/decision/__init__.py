# SPDX-License-Identifier: Apache-2.0
"""What to do about a GPUJob: pure functions of what was observed, without I/O or clock."""
