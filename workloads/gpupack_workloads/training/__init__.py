# SPDX-License-Identifier: Apache-2.0
"""What the training workloads share: number formats, optimiser steps, memory, peaks, agreement."""
