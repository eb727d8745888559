// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// machine is the devices of a server as `nvidia-smi topo -m` shows them: the words between any two
// of them, and their NUMA nodes.
type machine struct {
	name  string
	words [][]string
	numa  []int
}

// machines reads testdata/machines.
func machines(t *testing.T) []machine {
	t.Helper()
	files, err := filepath.Glob("testdata/machines/*.txt")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d machines: %v", len(files), err)
	}
	var all []machine
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := machine{name: filepath.Base(file)}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) < 3 || !strings.HasPrefix(words[0], "GPU") || words[1] == "GPU1" {
				continue
			}
			numa, err := strconv.Atoi(words[len(words)-1])
			if err != nil {
				t.Fatalf("%s: %q: %v", file, line, err)
			}
			m.words = append(m.words, words[1:len(words)-1])
			m.numa = append(m.numa, numa)
		}
		for i := range m.words {
			if len(m.words[i]) != len(m.words) || m.words[i][i] != "X" {
				t.Fatalf("%s: line %d is not of a square", file, i)
			}
		}
		all = append(all, m)
	}
	return all
}

// devices is the machine as its node publishes it.
func (m *machine) devices(mode sharing.Mode) []sharing.Device {
	var all []sharing.Device
	for i := range m.words {
		d := sharingtest.Device(i, "A100-80", mode)
		if d.NUMA = m.numa[i]; mode == sharing.MIG {
			d = sharingtest.Free(d)
		}
		for j, word := range m.words[i] {
			if count, ok := strings.CutPrefix(word, "NV"); ok {
				n, _ := strconv.Atoi(count)
				d.Links = append(d.Links, sharing.Link{Peer: sharing.DeviceID(fmt.Sprint("GPU-", j)), Kind: "nvlink", Count: n})
			} else if i != j {
				d.Links = append(d.Links, sharing.Link{Peer: sharing.DeviceID(fmt.Sprint("GPU-", j)), Kind: strings.ToLower(word)})
			}
		}
		all = append(all, d)
	}
	return all
}

// The order of sets, written down a second time from the words of the table.
type judged struct {
	key []int64 // the larger the better, first to last
	set uint64
}

var slowest = map[string]int64{"SYS": 1, "NODE": 2, "PHB": 3, "PXB": 4, "PIX": 5}

var counts = map[string]int64{"NODE": 10, "PHB": 20, "PXB": 30, "PIX": 40}

func weight(word string) (rank, count int64) {
	if n, ok := strings.CutPrefix(word, "NV"); ok {
		links, _ := strconv.ParseInt(n, 10, 64)
		return 6, 40 + 20*links
	}
	return slowest[word], counts[word]
}

// judge says how good a set is, given the devices that could have been in it, what the policy says
// of each, and the devices that the pod has besides.
func (m *machine) judge(set, open uint64, score []int64, home, beside uint64) judged {
	rank, inside, apart, scores, near, cut := int64(6), int64(0), int64(0), int64(0), int64(0), int64(0)
	for i := range m.words {
		if set>>i&1 == 0 {
			continue
		}
		scores += score[i]
		for j := range m.words {
			if i == j {
				continue
			}
			r, c := weight(m.words[i][j])
			if set>>j&1 == 1 && i < j {
				rank, inside = min(rank, r), inside+c
				if m.numa[i] != m.numa[j] {
					apart++
				}
			}
			if beside>>j&1 == 1 {
				near += c
			}
			if set>>j&1 == 0 && open>>j&1 == 1 {
				cut += c
			}
		}
	}
	if bits.OnesCount64(set) == 1 {
		cut = 0 // for one device only policy, nearness and order count
	}
	key := []int64{rank, inside, -apart, scores, int64(bits.OnesCount64(set & home)), near, -cut}
	for i := range m.words { // the first devices first
		key = append(key, int64(set>>i&1))
	}
	return judged{key, set}
}

// exhaustive is the best of all sets of so many open devices.
func (m *machine) exhaustive(wanted int, open uint64, score []int64, home, beside uint64) uint64 {
	var best judged
	for set := uint64(0); set < 1<<len(m.words); set++ {
		if bits.OnesCount64(set) != wanted || set&^open != 0 {
			continue
		}
		if j := m.judge(set, open, score, home, beside); best.key == nil || slices.Compare(j.key, best.key) > 0 {
			best = j
		}
	}
	return best.set
}

// chosen is the devices of one container, a bit for each.
func chosen(t *testing.T, c *sharing.ContainerShares) uint64 {
	t.Helper()
	var set uint64
	for _, s := range c.Shares {
		i, err := strconv.Atoi(strings.TrimPrefix(string(s.Device), "GPU-"))
		if err != nil {
			t.Fatal(err)
		}
		set |= 1 << i
	}
	return set
}

// crowd puts pods on some of the devices, so that policies prefer some to others.
func crowd(random *rand.Rand, l *sharing.Ledger) {
	for i := range l.Views() {
		if n := random.Int64N(8); n < 5 {
			d := l.Views()[i].Device
			s := sharing.Share{Device: d.ID, Mode: d.Mode, Memory: sharing.GiB * sharing.Bytes(n*10)}
			if n > 0 {
				l.Record(sharing.Owner(fmt.Sprint("other-", i)), sharingtest.Give("main", s))
			}
		}
	}
}

// scores is what the policy says of a share of so much memory on each device; open are those where
// it fits.
func scores(l *sharing.Ledger, p policy.Policy, memory sharing.Bytes) (score []int64, open uint64) {
	for i := range l.Views() {
		v := &l.Views()[i]
		score = append(score, p.Device(v, sharing.Cost{Memory: memory}))
		if v.FreeMemory() >= memory {
			open |= 1 << i
		}
	}
	return score, open
}

// Of every machine, whatever is on its devices, a container gets the set that an exhaustive search
// finds best, and the containers after it likewise beside the ones before.
func TestTheSetOfDevicesIsTheBestOfAll(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 3))
	for _, m := range machines(t) {
		t.Run(m.name, func(t *testing.T) {
			for range 480 / len(m.words) / len(m.words) * 8 {
				p, _ := policy.Named(policy.Names()[random.IntN(2)])
				l := sharing.NewLedger(sharingtest.Node("n1", m.devices(sharing.HAMiCore)...), factory.New())
				crowd(random, l)
				const mib = 20 << 10
				pod, room := sharingtest.Pod("pod"), len(m.words)
				for i := range 1 + random.IntN(2) {
					n := min(room, 1+random.IntN(len(m.words)))
					pod.Requests = append(pod.Requests, sharingtest.Times(n, sharingtest.Ask(fmt.Sprint("c", i), mib, 0)))
				}
				mates := someMates(random, l, pod)
				placement, refusals := place.Place(l.Views(), pod, factory.New(), p)
				if refusals.Refused() {
					continue
				}
				m.compare(t, l, pod, p, mates, &placement)
			}
		})
	}
}

// someMates makes pods that hold something pods of the same job, and returns their devices.
func someMates(random *rand.Rand, l *sharing.Ledger, pod *sharing.PodRequest) (devices uint64) {
	if random.IntN(2) == 0 {
		return 0
	}
	for i := range l.Views() {
		if held := l.Views()[i].Held(); len(held) > 0 && random.IntN(2) == 0 {
			pod.Mates = append(pod.Mates, held[0].Owner)
			devices |= 1 << i
		}
	}
	return devices
}

// compare judges the containers of a pod one after another.
func (m *machine) compare(t *testing.T, l *sharing.Ledger, pod *sharing.PodRequest, p policy.Policy, beside uint64, got *sharing.Placement) {
	t.Helper()
	var home uint64
	if len(pod.Requests) > 1 { // the best set for all of them, whatever the policy says
		wanted := 0
		for i := range pod.Requests {
			wanted += pod.Requests[i].Count
		}
		memory, _ := pod.Requests[0].Memory.Absolute()
		_, open := scores(l, p, memory)
		home = m.exhaustive(wanted, open, make([]int64, len(m.words)), 0, beside)
	}
	books := l.Fork()
	for i := range got.Containers {
		memory, _ := pod.Requests[i].Memory.Absolute()
		score, open := scores(books, p, memory)
		if bits.OnesCount64(open) < pod.Requests[i].Count {
			return // only another choice for an earlier container made room: that is a search
		}
		want := m.exhaustive(pod.Requests[i].Count, open, score, home, beside)
		if have := chosen(t, &got.Containers[i]); have != want {
			t.Fatalf("container %d of %d devices, of %b with %s, beside %b: got %b, want %b\nscores %v",
				i, pod.Requests[i].Count, open, p.Name(), beside, have, want, score)
		}
		beside |= want
		books.Record(sharing.Owner(fmt.Sprint("earlier-", i)), sharing.Placement{Containers: got.Containers[i : i+1]})
	}
}

// large is a node of islands of four devices, linked within.
func large(islands int) []sharing.Device {
	var all []sharing.Device
	for i := range 4 * islands {
		d := sharingtest.Device(i, "A100-80", sharing.HAMiCore)
		for j := i / 4 * 4; j < i/4*4+4; j++ {
			if j != i {
				d.Links = append(d.Links, sharing.Link{Peer: sharing.DeviceID(fmt.Sprint("GPU-", j)), Kind: "nvlink", Count: 2})
			}
		}
		all = append(all, d)
	}
	return all
}

// With more devices than are weighed exactly an island is still found, wherever it is.
func TestAnIslandIsFoundAmongManyDevices(t *testing.T) {
	for _, islands := range []int{4, 5, 8, 16} {
		l := sharing.NewLedger(sharingtest.Node("n1", large(islands)...), factory.New())
		for i := range 4 * islands { // one device of each island is taken, but of the second
			if i%4 == 3 && i/4 != 1 {
				l.Record(sharing.Owner(fmt.Sprint("other-", i)), sharingtest.Give("main", sharing.Share{
					Device: l.Views()[i].Device.ID, Mode: sharing.HAMiCore, Memory: 80 * sharing.GiB, Whole: true,
				}))
			}
		}
		p, _ := policy.Named("binpack")
		pod := sharingtest.Pod("pod", sharingtest.Times(4, sharingtest.Ask("main", 0, 0)))
		placement, refusals := place.Place(l.Views(), pod, factory.New(), p)
		if refusals.Refused() {
			t.Fatal(refusals.String())
		}
		if got := chosen(t, &placement.Containers[0]); got != 0b1111_0000 {
			t.Errorf("%d islands: got %b, want the second", islands, got)
		}
	}
}

// Any number of devices is served, whatever is weighed.
func TestManyDevicesOfMany(t *testing.T) {
	for _, c := range [][2]int{{17, 16}, {40, 20}, {64, 63}, {80, 3}, {80, 64}, {100, 80}, {300, 300}} {
		devices := large((c[0] + 3) / 4)[:c[0]]
		l := sharing.NewLedger(sharingtest.Node("n1", devices...), factory.New())
		p, _ := policy.Named("spread")
		pod := sharingtest.Pod("pod", sharingtest.Times(c[1], sharingtest.Ask("a", 1000, 0)), sharingtest.Times(2, sharingtest.Ask("b", 1000, 0)))
		placement, refusals := place.Place(l.Views(), pod, factory.New(), p)
		if refusals.Refused() {
			t.Fatalf("%d of %d: %s", c[1], c[0], refusals.String())
		}
		if err := l.Reserve("pod", placement); err != nil || len(placement.Containers[0].Shares) != c[1] {
			t.Errorf("%d of %d: %d shares, %v", c[1], c[0], len(placement.Containers[0].Shares), err)
		}
	}
}

// Partitions do not reach each other: the policy decides, and then the NUMA node.
func TestPathsBetweenPartitionsDoNotCount(t *testing.T) {
	var devices []sharing.Device
	for i, numa := range []int{0, 1, 1, 0} {
		d := sharingtest.Free(sharingtest.Device(i, "A100-80", sharing.MIG))
		d.NUMA, d.Links = numa, []sharing.Link{{Peer: sharing.DeviceID(fmt.Sprint("GPU-", i^1)), Kind: "nvlink", Count: 12}}
		devices = append(devices, d)
	}
	b := onNode(t, devices...)
	p := b.place(sharingtest.Pod("pod", sharingtest.Times(2, sharingtest.Ask("main", 5000, 0))))
	if got := chosen(t, &p.Containers[0]); got != 0b1001 {
		t.Errorf("got %b, want the two of one NUMA node", got)
	}
}

// What a container of several devices costs on a node that says how they reach each other.
func BenchmarkTopology(b *testing.B) {
	binpack, _ := policy.Named("binpack")
	for _, islands := range []int{2, 4, 8} {
		l := sharing.NewLedger(sharingtest.Node("n1", large(islands)...), factory.New())
		for _, wanted := range []int{2, 4, 8} {
			pod := sharingtest.Pod("pod", sharingtest.Times(wanted, sharingtest.Ask("main", 1000, 0)))
			b.Run(fmt.Sprintf("%d of %d linked devices", wanted, 4*islands), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, r := place.Place(l.Views(), pod, factory.New(), binpack); r.Refused() {
						b.Fatal(r.String())
					}
				}
			})
		}
	}
}
