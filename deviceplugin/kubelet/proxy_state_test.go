// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// last is the dumb account of what a proxy must offer: everything that happened, in order.
type last struct {
	lists []listed
	ends  []ended
}

type listed struct {
	session int
	name    string
}

type ended struct {
	session int
	at      time.Time
	after   int // lists before it
}

// offered is the list of the greatest session so far, and whether it counts as healthy.
func (l *last) offered(now time.Time, grace time.Duration) (name string, healthy bool) {
	newest := 0
	at := -1
	for i, e := range l.lists {
		if e.session >= newest {
			newest, name, at = e.session, e.name, i
		}
	}
	for _, e := range l.ends {
		if e.session == newest && e.after > at { // it ended after its last list: the first end counts
			return name, now.Sub(e.at) < grace
		}
	}
	return name, true
}

// Lists and ends of several sessions arrive in random order. What is offered is always the last
// list of the newest session, healthy until the grace after its end is over.
func TestWhatIsHeldInRandomOrders(t *testing.T) {
	const grace = 10 * time.Second
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, seed))
		var h proxyState
		var l last
		now, over := time.Unix(0, 0), map[int]bool{}
		for step := range 40 {
			session := 1 + random.IntN(5)
			now = now.Add(time.Duration(random.IntN(8)) * time.Second)
			switch {
			case random.IntN(3) == 0:
				h = h.afterEnd(session, now)
				over[session] = true
				l.ends = append(l.ends, ended{session, now, len(l.lists)})
			case !over[session]: // a stream that has ended lists nothing
				name := fmt.Sprintf("slot-%d", step)
				h = h.afterList(session, "example.com/a", []*pluginapi.Device{{ID: name, Health: pluginapi.Healthy}})
				l.lists = append(l.lists, listed{session, name})
			}
			if len(l.lists) == 0 {
				if h.isKnown() {
					t.Fatalf("seed %d: nothing was listed and something is proxyState", seed)
				}
				continue
			}
			name, healthy := l.offered(now, grace)
			got := h.offeredSlots(now, grace, func(string) bool { return false })
			if len(got) != 1 || got[0].GetID() != name || (got[0].GetHealth() == pluginapi.Healthy) != healthy {
				t.Fatalf("seed %d, step %d: offered %v, want %s, healthy %v", seed, step, got, name, healthy)
			}
		}
	}
}

func TestAnUnhealthyOfferLeavesThePluginsListAlone(t *testing.T) {
	slots := []*pluginapi.Device{{ID: "a", Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: 1}}}}}
	h := proxyState{}.afterList(1, "example.com/a", slots).afterEnd(1, time.Unix(100, 0))
	got := h.offeredSlots(time.Unix(200, 0), time.Minute, func(slot string) bool { return slot != "a" })
	if got[0].GetHealth() != pluginapi.Unhealthy || slots[0].GetHealth() != pluginapi.Healthy {
		t.Errorf("offered %v from %v", got, slots)
	}
	if got[0].GetTopology().GetNodes()[0].GetID() != 1 {
		t.Errorf("it offers %v", got)
	}
}
