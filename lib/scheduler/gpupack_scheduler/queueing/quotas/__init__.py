# SPDX-License-Identifier: Apache-2.0
"""GPUQuotas and GPUCohorts: their values for the queue, and the statuses that report on them."""
