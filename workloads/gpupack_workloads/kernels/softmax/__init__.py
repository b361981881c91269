# SPDX-License-Identifier: Apache-2.0
"""softmax(x) over the last dimension, and its gradient, fused.

Bytes: forward reads x and writes y, backward reads y and dy and writes dx; with every value read
once and written once the time is that of a copy, so this is where the bar stands.

Three ways, chosen by the length of a row (`tuning`):

rows    a program holds whole rows in registers
chunks  a program reads a row again from the cache, where the first reading has left it
passes  the same in a loop, for a row of any length
"""
