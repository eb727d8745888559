// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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
	runtime := fake.NewFakeRemoteRuntime()
	runtime.ImageService.SetFakeImageSize(1) // an image of no size counts as broken
	runtime.ImageService.SetFakeImages(hollowImages[:])
	if err := runtime.Start("unix://" + args[0]); err != nil {
		fmt.Fprintf(os.Stderr, "controlplane hollow-kubelet: start the fake runtime at %s: %v\n", args[0], err)
		return 1
	}
	defer runtime.Stop()
	os.Args = append([]string{"kubelet"}, args[2:]...)
	return cli.Run(kubelet.NewKubeletCommand(context.Background()))
}
