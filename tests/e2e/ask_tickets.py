# SPDX-License-Identifier: Apache-2.0
"""Run inside an agent's pod: print the tickets that the kubelet lists for the named pods.

Arguments: NAMESPACE/NAME ...; prints {"NAMESPACE/NAME": [ticket, ...]}.
"""


