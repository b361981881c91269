# SPDX-License-Identifier: Apache-2.0
"""The backend `this-machine`: GPUs of this host, shared by its processes without a daemon."""
