// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// proxyState is what a Proxy knows of the device plugin behind it. It is immutable: afterList and
// afterEnd return what follows from an event. The zero value knows nothing.
//
// Each registration of the plugin is a session with a number of its own, and a later one has a
// greater number. The end of a stream may be noticed after the next process of the plugin has
// registered; by its number it is known to be of the past.
type proxyState struct {
	session  int
	resource string
	slots    []*pluginapi.Device // as the plugin listed them; never written to
	present  bool                // the session's stream is open
	left     time.Time           // when it ended
}

func (s proxyState) isKnown() bool { return s.session > 0 }

// afterList takes in a list of a session. One of an earlier session changes nothing.
func (s proxyState) afterList(session int, resource string, slots []*pluginapi.Device) proxyState {
	if session < s.session {
		return s
	}
	return proxyState{session: session, resource: resource, slots: slots, present: true}
}

func (s proxyState) afterEnd(session int, now time.Time) proxyState {
	if session != s.session || !s.present {
		return s
	}
	s.present, s.left = false, now
	return s
}

// offeredSlots is the list for the kubelet: the plugin's own, and after it has been away for longer
// than the grace the same slots, unhealthy but for those that are held: a kubelet that starts would
// fail the pods that hold them, which can wait for the plugin.
func (s proxyState) offeredSlots(now time.Time, grace time.Duration, isHeld func(slot string) bool) []*pluginapi.Device {
	if !s.hasExpired(now, grace) {
		return s.slots
	}
	out := make([]*pluginapi.Device, 0, len(s.slots))
	for _, slot := range s.slots {
		d, _ := proto.Clone(slot).(*pluginapi.Device)
		if !isHeld(d.GetID()) {
			d.Health = pluginapi.Unhealthy
		}
		out = append(out, d)
	}
	return out
}

func (s proxyState) hasExpired(now time.Time, grace time.Duration) bool {
	return s.isKnown() && !s.present && now.Sub(s.left) >= grace
}

func (s proxyState) describeAbsence(now time.Time) string {
	switch {
	case !s.isKnown():
		return "it has not been here since the keeper was started"
	case s.present:
		return "its connection breaks again and again"
	}
	return fmt.Sprintf("it has been away for %s", now.Sub(s.left).Round(time.Second))
}
