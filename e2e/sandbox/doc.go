// SPDX-License-Identifier: Apache-2.0

// Package sandbox runs a real Kubernetes cluster with Volcano and this project's components
// on one machine: etcd, kube-apiserver, kube-controller-manager, kubelet, containerd,
// Volcano's controllers, the scheduler, the device plugin and the webhook. Only the GPU
// driver is a fake. Further nodes are simulated.
//
// Build makes every binary and image. Start brings a cluster up. Cluster.Stop takes it down
// and leaves nothing behind but log files. All files are under one state directory. A Cluster
// is safe for concurrent use.
//
// The package needs root and Linux, because the kubelet and containerd do.
package sandbox
