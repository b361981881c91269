# SPDX-License-Identifier: Apache-2.0
"""Readers of input files. A file is used as a whole or not at all: every fault is reported."""
