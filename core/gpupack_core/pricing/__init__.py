# SPDX-License-Identifier: Apache-2.0
"""What gaps on GPUs are worth, from the mix of requests: the slow part of policy `bid-price`.

    gaps ─► cutting_stock (HiGHS) ─► knapsack

The one package of core that needs more than numpy: highspy, imported when prices are asked for.
"""
