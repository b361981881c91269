# SPDX-License-Identifier: Apache-2.0
"""The kubelet's two gRPC APIs, generated from the .proto files in this folder.

`agent/generate.py` writes every `*_pb2*` file here; edit the .proto files instead.
"""
