# SPDX-License-Identifier: Apache-2.0
"""The backend `cluster`: GPUs of a cluster that gpupack schedules, through its REST API."""
