# SPDX-License-Identifier: Apache-2.0
"""Common code of the training workloads: number formats, optimiser steps, memory, peaks."""
