# SPDX-License-Identifier: Apache-2.0
"""Builds gpupack's container images with Docker or buildah, with or without a registry."""
