# SPDX-License-Identifier: Apache-2.0
"""The product for 8-bit and 16-bit types on Hopper GPUs: tensor maps, specialised warps, wgmma."""
