// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// maxSlots bounds a list that a Proxy takes. The protocol's own bound, 4 MiB for a message, lies
// above it.
const maxSlots = 60000

// checkRegistration returns what is wrong with a registration at a Proxy. The kubelet would say
// most of it too, but only later, and to the Proxy.
func checkRegistration(r *pluginapi.RegisterRequest) error {
	if r.GetVersion() != pluginapi.Version {
		return fmt.Errorf("version %q of the device plugin protocol: want %q", r.GetVersion(), pluginapi.Version)
	}
	if problems := validation.IsQualifiedName(r.GetResourceName()); len(problems) > 0 || !strings.Contains(r.GetResourceName(), "/") {
		return fmt.Errorf("resource %q: want a name with a domain, such as example.com/name", r.GetResourceName())
	}
	if e := r.GetEndpoint(); e == "" || e == "." || e == ".." || e == kubeletSocket || filepath.Base(e) != e {
		return fmt.Errorf("endpoint %q: want the name of a socket in the directory of the registration", e)
	}
	if !r.GetOptions().GetPreStartRequired() {
		return errors.New("the plugin does not ask for PreStartContainer: a container could start while the plugin is away")
	}
	return nil
}

func checkSlots(slots []*pluginapi.Device) error {
	if len(slots) > maxSlots {
		return fmt.Errorf("%d slots: at most %d", len(slots), maxSlots)
	}
	seen := make(map[string]bool, len(slots))
	for _, s := range slots {
		switch id := s.GetID(); {
		case id == "":
			return errors.New("a slot has no name")
		case seen[id]:
			return fmt.Errorf("slot %q is listed twice", id)
		case s.GetHealth() != pluginapi.Healthy && s.GetHealth() != pluginapi.Unhealthy:
			return fmt.Errorf("slot %q has health %q: want %q or %q", id, s.GetHealth(), pluginapi.Healthy, pluginapi.Unhealthy)
		default:
			seen[id] = true
		}
	}
	return nil
}
