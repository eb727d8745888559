// SPDX-License-Identifier: Apache-2.0

// Package suites tests the product on a real cluster in the sandbox, as a black
// box: real etcd, apiserver, kubelet, containerd and Volcano controllers, our
// scheduler, device plugin, webhook and library. Only the GPU is fake.
//
// The suites need root and some minutes, so they run when DEVICESHARE_E2E=1 is
// set, as `make test-e2e` does. One of them alone:
//
//	DEVICESHARE_E2E=1 go test ./e2e/suites -run 'TestInstalledCluster/identity' -v
package suites
