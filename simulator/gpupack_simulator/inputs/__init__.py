# SPDX-License-Identifier: Apache-2.0
"""Files in. A file is used as a whole or not at all: every fault in it is reported."""
