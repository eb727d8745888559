// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// device reads "GPU-0 A100-80 mig unhealthy virtual numa=1 memory=40GiB".
func device(t *testing.T, line string) sharing.Device {
	words := strings.Fields(line)
	if len(words) < 3 {
		t.Fatalf("device %q: want id, model, mode", line)
	}
	index, err := strconv.Atoi(strings.TrimPrefix(words[0], "GPU-"))
	if err != nil {
		t.Fatalf("device %q: %v", line, err)
	}
	mode, err := sharing.ParseMode(words[2])
	if err != nil {
		t.Fatalf("device %q: %v", line, err)
	}
	d := sharingtest.Device(index, words[1], mode)
	d.ID = sharing.DeviceID(words[0])
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "unhealthy":
			d.Healthy = false
		case "virtual":
			d.Virtual = true
		case "no-geometries":
			d = sharingtest.Free(d)
		case "best-fit":
			d = sharingtest.BestFit(d)
		case "geometries":
			d.MIG = only(d.MIG, strings.Split(value, ","))
		case "shares":
			d.MaxShares = number(t, value)
		case "cores":
			d.Cores = sharing.Percent(number(t, value))
		case "memory":
			d.Memory = amount(t, value)
		case "numa":
			d.NUMA = number(t, value)
		default:
			links, ok := links(key, value)
			if !ok {
				t.Fatalf("device %q: unknown %q", line, word)
			}
			d.Links = append(d.Links, links...)
		}
	}
	return d
}

// links reads "nvlink=GPU-1,GPU-2", "nv12=GPU-1" or "pxb=GPU-1".
func links(kind, peers string) ([]sharing.Link, bool) {
	count, err := strconv.Atoi(strings.TrimPrefix(kind, "nv"))
	if err == nil {
		kind = "nvlink"
	}
	if !slices.Contains([]string{"nvlink", "pix", "pxb", "phb", "node", "sys"}, kind) {
		return nil, false
	}
	var all []sharing.Link
	for peer := range strings.SplitSeq(peers, ",") {
		all = append(all, sharing.Link{Peer: sharing.DeviceID(peer), Kind: kind, Count: count})
	}
	return all, true
}

// only keeps the named geometries, in the order named.
func only(p *sharing.Partitioning, names []string) *sharing.Partitioning {
	q := *p
	q.Geometries = nil
	for _, name := range names {
		for _, g := range p.Geometries {
			if g.Name == name {
				q.Geometries = append(q.Geometries, g)
			}
		}
	}
	return &q
}

// parsePod reads a pod: options of the pod, one line per container.
func parsePod(t *testing.T, name string, options, lines []string) (*sharing.PodRequest, policy.Policy) {
	near := &sharing.Neighbours{Labels: map[string]string{}}
	pod := &sharing.PodRequest{Owner: sharing.Owner(name), Policy: "binpack", Neighbours: near}
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "policy":
			pod.Policy = value
		case "group":
			near.Group = value
		case "spread":
			near.Spread = true
		case "namespace":
			pod.Namespace = value
		case "label":
			key, text, _ := strings.Cut(value, ":")
			near.Labels[key] = text
		case "neighbours":
			near.Accepts = sharing.Acceptance(slices.Index(sharing.Acceptances(), value))
		case "not-beside":
			key, text, _ := strings.Cut(value, ":")
			near.Avoids = append(near.Avoids, sharing.Avoidance{Pods: sharing.LabelSelector{{Key: key, Values: []string{text}}}, Rule: value})
		case "virtual":
			pod.Selector.Virtual = map[string]sharing.VirtualRule{"never": sharing.NeverVirtual, "only": sharing.OnlyVirtual}[value]
		case "one-numa":
			pod.OneNUMA = true
		case "mates":
			for mate := range strings.SplitSeq(value, ",") {
				pod.Mates = append(pod.Mates, sharing.Owner(mate))
			}
		case "modes":
			for m := range strings.SplitSeq(value, ",") {
				pod.Modes = append(pod.Modes, sharing.Mode(m))
			}
		case "model":
			pod.Selector.UseModels = append(pod.Selector.UseModels, value)
		case "not-model":
			pod.Selector.NotModels = append(pod.Selector.NotModels, value)
		case "id":
			pod.Selector.UseIDs = append(pod.Selector.UseIDs, sharing.DeviceID(value))
		case "not-id":
			pod.Selector.NotIDs = append(pod.Selector.NotIDs, sharing.DeviceID(value))
		default:
			t.Fatalf("pod %s: unknown %q", name, option)
		}
	}
	for _, line := range lines {
		pod.Requests = append(pod.Requests, parseRequest(t, line))
	}
	order, ok := policy.Named(pod.Policy)
	if !ok {
		t.Fatalf("pod %s: no policy %q", name, pod.Policy)
	}
	return pod, order
}

// parseRequest reads "init setup: 2 devices memory=10GiB cores=30".
func parseRequest(t *testing.T, line string) sharing.Request {
	head, rest, ok := strings.Cut(line, ":")
	if !ok {
		t.Fatalf("container %q: want a name and a colon", line)
	}
	r := sharing.Request{Container: head, Count: 1}
	if kind, name, two := strings.Cut(head, " "); two {
		r.Container = name
		r.Kind = map[string]sharing.ContainerKind{"init": sharing.Init, "sidecar": sharing.Sidecar}[kind]
	}
	words := strings.Fields(rest)
	for i, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "devices":
			r.Count = number(t, words[i-1])
		case "memory":
			if percent, ok := strings.CutSuffix(value, "%"); ok {
				r.Memory = sharing.PercentMemory(sharing.Percent(number(t, percent)))
			} else {
				r.Memory = sharing.AbsoluteMemory(amount(t, value))
			}
		case "cores":
			r.Cores = sharing.Percent(number(t, value))
		case "even":
			r.Even = true
		case "all":
		default:
			if i+1 == len(words) || words[i+1] != "devices" {
				t.Fatalf("container %q: unknown %q", line, word)
			}
		}
	}
	return r
}

func number(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func amount(t *testing.T, s string) sharing.Bytes {
	if gib, ok := strings.CutSuffix(s, "GiB"); ok {
		return sharing.Bytes(number(t, gib)) * sharing.GiB
	}
	return sharing.MiBs(int64(number(t, strings.TrimSuffix(s, "MiB"))))
}

// show prints a placement: one line per container.
func show(node string, p *sharing.Placement) string {
	var b strings.Builder
	for i := range p.Containers {
		c := &p.Containers[i]
		fmt.Fprintf(&b, "%s: %s ->", node, c.Container)
		for j := range c.Shares {
			s := &c.Shares[j]
			if j > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, " %s ", s.Device)
			switch q := s.Partition; {
			case !q.IsZero():
				fmt.Fprintf(&b, "%s@%d [%s-%d]", q.Profile, q.Start, q.Geometry, q.Position)
			case s.Whole:
				b.WriteString("whole")
			default:
				fmt.Fprintf(&b, "%s %v %d%%", s.Mode, s.Memory, s.Cores)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// draw prints the devices of a node as strips. A letter is a pod: a tenth of the
// memory, or a memory slice of a partitioned device.
func (w *world) draw(name string) string {
	var b strings.Builder
	for i := range w.ledgers[name].Views() {
		v := &w.ledgers[name].Views()[i]
		cells, width := 0, 10
		if v.Device.Mode == sharing.MIG {
			width = v.Device.MIG.Slices
		}
		strip := []byte(strings.Repeat(".", width))
		var owners []string
		letter := byte('a' - 1)
		for j, h := range v.Held() {
			if j == 0 || v.Held()[j-1].Owner != h.Owner {
				letter++
				owners = append(owners, string(letter)+"="+string(h.Owner))
			}
			if q := h.Share.Partition; !q.IsZero() {
				for k := range q.Size {
					strip[q.Start+k] = letter
				}
				continue
			}
			for k := 0; k < int((h.Share.Memory*10+v.Device.Memory-1)/v.Device.Memory) && cells < width; k++ {
				strip[cells] = letter
				cells++
			}
		}
		fmt.Fprintf(&b, "%s %-12s [%s] %v of %v, %d%% of %d%%, %d of %d shares", v.Device.ID, v.Device.Mode, strip,
			v.UsedMemory(), v.Device.Memory, v.UsedCores(), v.Device.Cores, v.Sharers(), v.Device.MaxShares)
		if len(owners) > 0 {
			b.WriteString("  " + strings.Join(owners, " "))
		}
		b.WriteString("\n")
	}
	return b.String()
}
