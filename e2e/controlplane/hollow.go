// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/cri-client/pkg/fake"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// hollowImages are those that pods with imagePullPolicy Never find on a hollow node.
var hollowImages = [...]string{"deviceshare/cudaclient:sandbox"}

// runHollowKubelet runs a kubelet with the container runtime that Kubernetes tests kubelets with:
// it keeps containers in memory and reports them running until they are stopped.
func runHollowKubelet(args []string) int {
	if len(args) < 2 || args[1] != "--" {
		fmt.Fprintln(os.Stderr, usage)
		return 2
	}
	if err := leaveRoot(args[0] + ".empty"); err != nil {
		fmt.Fprintf(os.Stderr, "controlplane hollow-kubelet: %v\n", err)
		return 1
	}
	runtime := fake.NewFakeRemoteRuntime()
	runtime.ImageService.SetFakeImageSize(1) // an image of no size counts as broken
	runtime.ImageService.SetFakeImages(hollowImages[:])
	if err := runtime.Start("unix://" + args[0]); err != nil {
		fmt.Fprintf(os.Stderr, "controlplane hollow-kubelet: start the fake runtime at %s: %v\n", args[0], err)
		return 1
	}
	defer runtime.Stop()
	os.Args = append([]string{"kubelet"}, args[2:]...)
	return cli.Run(newKubelet(kubelet.NewKubeletCommand))
}

// leaveRoot makes an empty directory the working directory. The fake runtime's containers have no
// log file, and a kubelet that removes a container removes all files whose name begins with that of
// its log file: everything in the working directory, such as the link /bin.
func leaveRoot(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make an empty directory to work in: %w", err)
	}
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("work in an empty directory: %w", err)
	}
	return nil
}
