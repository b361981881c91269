# SPDX-License-Identifier: Apache-2.0
"""Running jobs of the queue, from the claims of the ledger."""
