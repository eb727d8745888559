// SPDX-License-Identifier: Apache-2.0

// Command controlplane holds the Kubernetes components of the sandbox in one binary, one subcommand
// each:
//
//	controlplane apiserver --etcd-dir DIR --etcd-client-port N --etcd-peer-port N -- <kube-apiserver flags>
//	controlplane controller-manager <kube-controller-manager flags>
//	controlplane scheduler <kube-scheduler flags>
//	controlplane kubelet <kubelet flags>
//	controlplane hollow-kubelet SOCKET -- <kubelet flags>
//
// The apiserver runs with an etcd embedded in the same process: the two are always started, killed
// and restarted together, and one process fewer is one thing fewer to clean up. It lives in a Go
// module of its own so that etcd and Kubernetes do not become dependencies of the product.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // the CronJob controller accepts time zones

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const usage = `usage: controlplane apiserver|controller-manager|scheduler|kubelet [flags]
       controlplane apiserver --etcd-dir DIR --etcd-client-port N --etcd-peer-port N -- [kube-apiserver flags]
       controlplane hollow-kubelet SOCKET -- [kubelet flags]`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	name, args := os.Args[1], os.Args[2:]
	// Every component parses os.Args by itself, so each is shown a command line of its own.
	os.Args = append([]string{"kube-" + name}, args...)
	switch name {
	case "apiserver":
		os.Exit(runAPIServer(args))
	case "controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kubelet":
		os.Exit(cli.Run(newKubelet(kubelet.NewKubeletCommand)))
	case "hollow-kubelet":
		os.Exit(runHollowKubelet(args))
	default:
		fmt.Fprintf(os.Stderr, "controlplane: no component %q\n%s\n", name, usage)
		os.Exit(2)
	}
}
