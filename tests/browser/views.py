# SPDX-License-Identifier: Apache-2.0
"""Every view, with a text that it shows for the small world."""

SHOWN = {
    "": "Whole GPUs free",
    "nodes": "train-01",
    "nodes/train-03": "GPU 5",
    "jobs": "pretrain-large",
    "jobs/vision/sweep": "XID 79",
    "jobs/vision/pretrain-large": "32 GPUs are missing",
    "queue": "32 GPUs are missing",
    "quotas": "robotics",
    "packing": "Fragmentation",
    "what-if": "Each worker has",
    "cost": "The last",
}
