# SPDX-License-Identifier: Apache-2.0
"""These tests run where torch is: in the image `workloads-test`, as a pod of the cluster suite."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]
