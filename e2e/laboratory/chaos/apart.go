// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"strconv"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/e2e/sandbox"
)

// apart is how long the kubelet and containerd are spared at least after the other one was killed.
// A kubelet that starts without a container runtime takes pods that run for new ones, and refuses
// those that it comes upon before their device plugin has registered (kubernetes#118559).
const apart = 15 * time.Second

// isApart reports whether a kubelet that was killed, or is to be killed, finds a container runtime.
// It makes its socket anew right after it has asked which containers run. On a busy machine that is
// only 15 seconds after its start, and containerd takes 20 to come back.
func (d *Disturber) isApart(ctx context.Context, target string) bool {
	switch target {
	case sandbox.Containerd:
		made, err := d.cluster.Run(ctx, "stat", "--format=%.3Y", pluginapi.KubeletSocket)
		return err == nil && isAfter(made, d.kubeletDied)
	case sandbox.Kubelet:
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return d.cluster.WaitReady(soon, sandbox.Containerd) == nil
	}
	return true
}

// isAfter compares seconds since 1970, as stat prints them, with a moment.
func isAfter(seconds string, moment time.Time) bool {
	at, err := strconv.ParseFloat(strings.TrimSpace(seconds), 64)
	return err == nil && time.UnixMilli(int64(at*1000)).After(moment)
}
