# SPDX-License-Identifier: Apache-2.0
"""z[i] = x[i] + y[i]: the smallest kernel, and the pattern of the others.

Bytes: both inputs read once, the output written once. One addition per 12 bytes (fp32) is far below
what a GPU computes per byte, so memory bandwidth is the whole time.
"""
