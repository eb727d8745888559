// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Places is where the kubelet, the device plugin and a Proxy meet.
type Places struct {
	// Root is the kubelet's root directory.
	Root Directory
	// Keeper is the directory in which a Proxy takes registrations; "" if the device plugin
	// always registers with the kubelet itself.
	Keeper string
	// Grace is that of the Proxy.
	Grace time.Duration
	// Move says when the device plugin goes from the Proxy to the kubelet and back.
	Move MoveTimes
}

// DefaultPlaces are those of a usual node, without a Proxy.
func DefaultPlaces() Places {
	return Places{Root: "/var/lib/kubelet", Grace: 2 * time.Minute, Move: DefaultMoveTimes()}
}

// AddFlags adds the flags, with the values of p as defaults.
func (p *Places) AddFlags(f *pflag.FlagSet) {
	f.StringVar((*string)(&p.Root), "kubelet-dir", string(p.Root), "the kubelet's root directory")
	f.StringVar(&p.Keeper, "keeper-dir", p.Keeper,
		"directory in which the keeper (subcommand keep) takes the device plugin's registration and stays registered with the kubelet for it; while it does not, and if this is empty, the device plugin registers with the kubelet directly, which refuses pods for good while this process is away")
	f.DurationVar(&p.Grace, "keeper-grace", p.Grace, "how long the keeper offers the slots of a device plugin that is away")
}

// Check returns every mistake.
func (p *Places) Check() []error {
	var wrong []error
	for flag, path := range map[string]string{"kubelet-dir": string(p.Root), "keeper-dir": p.Keeper} {
		if !filepath.IsAbs(path) && (flag == "kubelet-dir" || path != "") {
			wrong = append(wrong, fmt.Errorf("--%s=%q: want an absolute path", flag, path))
		}
	}
	if p.Grace < 0 {
		wrong = append(wrong, fmt.Errorf("--keeper-grace=%s: want a time that is not negative", p.Grace))
	}
	return wrong
}

// NewProxy returns the Proxy of these places.
func (p *Places) NewProxy() *Proxy {
	return NewProxy(ProxyConfig{
		Kubelet: p.Root.DevicePlugins(), Directory: p.Keeper,
		Grace: p.Grace, Patience: startPatience, Leave: 2 * time.Second,
	})
}

// startPatience is how long a container's start waits for a plugin that is away: shortly less than
// the kubelet waits for an answer.
const startPatience = pluginapi.KubeletPreStartContainerRPCTimeoutInSecs*time.Second - proxyMargin
