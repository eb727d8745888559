// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing"
)

// offer is one answer for each device, by id; devices without one are hidden.
type offer map[sharing.DeviceID]Offer

func (o offer) Offer(f *Facts) Offer {
	if one, ok := o[f.UUID]; ok {
		return one
	}
	return Offer{Hidden: true}
}

// offering is a node with devices of 10000 MiB that are offered like this.
func offering(unit int64, devices offer, holdings Holdings) State {
	facts := []Facts{{UUID: "GPU-a", Memory: sharing.MiBs(10000)}, {UUID: "GPU-b", Memory: sharing.MiBs(10000), Index: 1, PCI: "b"}}
	s := Reduce(New(Config{Node: "n"}), Configured{Settings{Offers: devices, Unit: unit}})
	return Reduce(Reduce(s, Scanned{Devices: facts}), holdings)
}

// holds is a pod with shares of these devices, of 2000 MiB and 10 % each.
func holds(name string, asked int64, devices ...sharing.DeviceID) Holding {
	h := Holding{Owner: sharing.Owner(name), Namespace: "ns", Pod: name, Asked: Amounts{int64(len(devices)), asked, 10 * int64(len(devices))}}
	var shares []sharing.Share
	for _, id := range devices {
		shares = append(shares, sharing.Share{Device: id, Mode: sharing.HAMiCore, Memory: sharing.MiBs(2000), Cores: 10})
	}
	h.Placement.Containers = []sharing.ContainerShares{{Container: "main", Shares: shares}}
	return h
}

func TestTheKubeletIsOfferedWhatIsWantedAndWhatIsHeldBeyondThat(t *testing.T) {
	whole := Offer{Mode: sharing.HAMiCore, MemoryScaling: 1, CoreScaling: 1, MaxShares: 2}
	half := Offer{Mode: sharing.HAMiCore, MemoryScaling: 0.1, CoreScaling: 0.1, MaxShares: 1}
	both, one := offer{"GPU-a": whole, "GPU-b": whole}, offer{"GPU-a": whole}
	two := []Holding{holds("p", 2000, "GPU-b"), holds("q", 2000, "GPU-b")}
	for name, c := range map[string]struct {
		unit    int64
		devices offer
		pods    []Holding
		want    Amounts
		causes  string
	}{
		"nobody":                           {1, both, nil, Amounts{4, 20000, 200}, ""},
		"pods within what is wanted":       {1, both, two, Amounts{4, 20000, 200}, ""},
		"units are rounded per device":     {1024, both, nil, Amounts{4, 18, 200}, ""},
		"no unit counts as one MiB":        {0, both, nil, Amounts{4, 20000, 200}, ""},
		"a hidden device keeps its pods":   {1, one, two, Amounts{2 + 2, 10000 + 4000, 100 + 20}, "GPU-b " + string(CauseHidden)},
		"one that is away keeps them too":  {1, both, []Holding{holds("p", 2000, "GPU-x")}, Amounts{5, 22000, 210}, "GPU-x " + string(CauseAway)},
		"less of a device":                 {1, offer{"GPU-a": whole, "GPU-b": half}, two, Amounts{2 + 2, 10000 + 4000, 100 + 20}, fmt.Sprintf("GPU-b %s,GPU-b %s,GPU-b %s", CauseShares, CauseMemory, CauseCores)},
		"a larger unit":                    {1000, both, two, Amounts{4, 20 + 2*1998, 200}, " " + string(CauseUnit)},
		"a smaller unit":                   {1, both, []Holding{holds("p", 2, "GPU-a")}, Amounts{4, 20000, 200}, ""},
		"what cannot be read counts, too":  {1, both, []Holding{{Owner: "p", Asked: Amounts{9, 90000, 900}}}, Amounts{9, 90000, 900}, ""},
		"hostile amounts cannot wrap":      {1, both, []Holding{{Owner: "p", Asked: Amounts{1, 1<<63 - 1, -5}}, {Owner: "q", Asked: Amounts{1, 1<<63 - 1, -5}}}, Amounts{4, 1<<63 - 1, 200}, ""},
		"a pod with two hidden devices":    {1, offer{}, []Holding{holds("p", 2000, "GPU-a", "GPU-b")}, Amounts{2, 4000, 20}, fmt.Sprintf("GPU-a %s,GPU-b %s", CauseHidden, CauseHidden)},
		"of which only the hidden one is":  {1, one, []Holding{holds("p", 2000, "GPU-a", "GPU-b")}, Amounts{3, 12000, 110}, "GPU-b " + string(CauseHidden)},
		"an ask without an amount is none": {1000, both, []Holding{holds("p", 0, "GPU-a")}, Amounts{4, 20, 200}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := offering(c.unit, c.devices, Holdings{Pods: c.pods})
			var causes []string
			for _, o := range s.Overhangs() {
				causes = append(causes, string(o.Device)+" "+string(o.Cause))
			}
			if got := s.Offered(); got != c.want {
				t.Errorf("it offers %+v, want %+v", got, c.want)
			}
			if got := strings.Join(causes, ","); got != c.causes {
				t.Errorf("the causes are %q, want %q", got, c.causes)
			}
		})
	}
}

// Whatever is recorded: held slots stay, there is room for what is wanted, and nothing else is
// listed. A list changes only where it has to.
func TestSlotsThatPodsHoldStay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := func() (some []string) {
		for range r.IntN(8) {
			some = append(some, []string{"GPU-a-%d", "slot-%d", "x%d"}[r.IntN(3)])
			some[len(some)-1] = fmt.Sprintf(some[len(some)-1], r.IntN(20))
		}
		slices.Sort(some)
		return slices.Compact(some)
	}
	for range 10000 {
		total, held, doubtful := r.IntN(12), names(), names()
		got := slotNames(total, held, doubtful)
		if len(got) != max(total, len(held)) || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
			t.Fatalf("%d slots, %v held, %v doubtful: %v", total, held, doubtful, got)
		}
		for _, name := range held {
			if !slices.Contains(got, name) {
				t.Fatalf("%s is held and not in %v", name, got)
			}
		}
		// What the kubelet picks of the list changes nothing of it.
		more := held
		for _, name := range got {
			if len(more) < total && !slices.Contains(more, name) && r.IntN(2) == 0 {
				more = append(slices.Clip(more), name)
			}
		}
		if then := slotNames(total, more, doubtful); len(doubtful) == 0 && !slices.Equal(then, got) {
			t.Fatalf("with %v held the slots are %v, with %v they are %v", held, got, more, then)
		}
	}
}

// People are told once, and of each pod.
func TestWhatIsHeldBeyondTheOfferIsToldOnce(t *testing.T) {
	whole := Offer{Mode: sharing.HAMiCore, MemoryScaling: 1, CoreScaling: 1, MaxShares: 2}
	told := func(before, after State) string {
		var texts []string
		for _, n := range Diff(before, after) {
			if n.Kind == OfferExceeded || n.Kind == OfferMet {
				var pods []string
				for _, p := range n.Pods {
					pods = append(pods, p.Pod)
				}
				texts = append(texts, fmt.Sprintf("%s %s %s", n.Kind, n.Device, strings.Join(pods, "+")))
			}
		}
		return strings.Join(texts, ",")
	}
	s := offering(1, offer{"GPU-a": whole, "GPU-b": whole}, Holdings{Pods: []Holding{holds("p", 2000, "GPU-b")}})
	for i, step := range []struct {
		event Event
		want  string
	}{
		{Configured{Settings{Offers: offer{"GPU-a": whole}}}, "OfferExceeded GPU-b p"},
		{Configured{Settings{Offers: offer{"GPU-a": whole}}}, ""},
		{Holdings{Pods: []Holding{holds("p", 2000, "GPU-b"), holds("q", 2000, "GPU-b")}}, "OfferExceeded GPU-b q"},
		{ConfigLost{Settings: Settings{Offers: offer{}}, Why: "unreadable"}, ""},
		{Configured{Settings{Offers: offer{"GPU-a": whole}}}, "OfferExceeded GPU-b p+q"},
		{Holdings{Pods: []Holding{holds("q", 2000, "GPU-b")}}, ""},
		{Holdings{}, "OfferMet GPU-b "},
	} {
		next := Reduce(s, step.event)
		if got := told(s, next); got != step.want {
			t.Errorf("step %d: told %q, want %q", i, got, step.want)
		}
		s = next
	}
}
