# SPDX-License-Identifier: Apache-2.0
"""A builder of gpupack's container images with Docker or buildah, with or without a registry."""
