# SPDX-License-Identifier: Apache-2.0
"""A real multi-node Kubernetes cluster on one Linux host, without Docker and without a registry.

Flow of `up`: control_plane starts etcd and the Kubernetes daemons on the host. node boots each node
as one PID namespace with kubelet, containerd and kube-proxy in it. network connects them with one
bridge. images links the images of the local store into each node's containerd.

No record of running processes is kept. Every process carries the cluster's mark in its environment
(processes), so that the next driver finds everything that a killed driver has left.
"""
