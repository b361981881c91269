# SPDX-License-Identifier: Apache-2.0
"""A real multi-node Kubernetes cluster on one Linux host, without Docker and without a registry.

Flow of `up`: control_plane starts etcd and the Kubernetes daemons on the host; node boots each
node as one PID namespace with kubelet, containerd and kube-proxy in it; network connects them by
one bridge; images links the images of the local store into each node's containerd.

Nothing is remembered about running processes: every one carries the cluster's mark in its
environment (processes), so a driver that was killed leaves nothing that the next one cannot find.
"""
