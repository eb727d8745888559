// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"fmt"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/quota"
)

const gib = int64(sharing.GiB)

func names() quota.Names {
	return quota.Names{Memory: "volcano.sh/vgpu-memory", Cores: "volcano.sh/vgpu-cores", Number: "volcano.sh/vgpu-number", Factor: 1}
}

// limits reads lists such as "memory=100 cores=50 memory.a100=80": memory in GiB.
func limits(t *testing.T, text string) []quota.Limit {
	t.Helper()
	var all []quota.Limit
	for _, field := range strings.Fields(text) {
		name, amount, _ := strings.Cut(field, "=")
		var n int64
		if _, err := fmt.Sscan(amount, &n); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "memory") {
			n *= 1024
		}
		l, ok := quota.ReadLimit("volcano.sh/vgpu-"+name, n, names())
		if !ok {
			t.Fatalf("%q is no limit", field)
		}
		all = append(all, l)
	}
	return all
}

func amounts(model string, memoryGiB, cores int64) quota.Amounts {
	return quota.Amounts{{Model: model, Memory: memoryGiB * gib, Cores: cores}}
}

func TestALimitIsReadFromTheNameOfAResource(t *testing.T) {
	for name, c := range map[string]struct {
		key    string
		value  int64
		factor int64
		want   string // resource, model, amount
		no     bool
	}{
		"memory is in MiB":                              {key: "volcano.sh/vgpu-memory", value: 2048, want: fmt.Sprint(quota.Memory, "", 2*gib)},
		"memory is in units of the configured size":     {key: "volcano.sh/vgpu-memory", value: 2, factor: 1024, want: fmt.Sprint(quota.Memory, "", 2*gib)},
		"a factor that is not configured is one":        {key: "volcano.sh/vgpu-memory", value: 1024, factor: -1, want: fmt.Sprint(quota.Memory, "", gib)},
		"cores are in percent":                          {key: "volcano.sh/vgpu-cores", value: 250, want: fmt.Sprint(quota.Cores, "", 250)},
		"a model follows a dot":                         {key: "volcano.sh/vgpu-cores.A100-SXM4", value: 7, want: fmt.Sprint(quota.Cores, "a100 sxm4", 7)},
		"a model of no words is every model":            {key: "volcano.sh/vgpu-cores.--", value: 7, want: fmt.Sprint(quota.Cores, "", 7)},
		"a negative amount is none":                     {key: "volcano.sh/vgpu-cores", value: -7, want: fmt.Sprint(quota.Cores, "", 0)},
		"an amount beyond all numbers is the largest":   {key: "volcano.sh/vgpu-memory", value: 1 << 62, factor: 1024, want: fmt.Sprint(quota.Memory, "", int64(sharing.MaxBytes))},
		"the number of shares":                          {key: "volcano.sh/vgpu-number.a100", value: 7, want: fmt.Sprint(quota.Number, "a100", 7)},
		"a percentage of memory has no sum":             {key: "volcano.sh/vgpu-memory-percentage", no: true},
		"another resource is no limit of this kind":     {key: "cpu", no: true},
		"a name that only begins the same is not meant": {key: "volcano.sh/vgpu-cores2", no: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := names()
			if c.factor != 0 {
				n.Factor = c.factor
			}
			l, ok := quota.ReadLimit(c.key, c.value, n)
			if ok == c.no {
				t.Fatalf("read: %v", ok)
			}
			if got := fmt.Sprint(l.Resource, l.Model, l.Amount); ok && (got != c.want || l.Name != c.key) {
				t.Errorf("read %s as %s, want %s", l.Name, got, c.want)
			}
		})
	}
	if _, ok := quota.ReadLimit("anything", 1, quota.Names{}); ok {
		t.Error("a resource without a name limits everything")
	}
}

const a100, a10 = "NVIDIA A100-SXM4-80GB", "NVIDIA A10"

type pod struct {
	queue string
	takes quota.Amounts
}

// queueCase is pods that run in queues, and one that asks for more.
type queueCase struct {
	queues map[string]string // "name<parent": capability | guarantee
	run    []pod
	asks   pod
	want   string // "" if it may have it
}

func TestWhatACapabilityRefuses(t *testing.T) {
	for name, c := range map[string]queueCase{
		"a queue without limits": {
			queues: map[string]string{"q": ""}, asks: pod{"q", amounts(a100, 1<<20, 1<<20)},
		},
		"a queue that nobody knows": {asks: pod{"q", amounts(a100, 80, 100)}},
		"up to the last byte": {
			queues: map[string]string{"q": "memory=100"}, run: []pod{{"q", amounts(a100, 60, 0)}}, asks: pod{"q", amounts(a100, 40, 500)},
		},
		"one more": {
			queues: map[string]string{"q": "memory=100"}, run: []pod{{"q", amounts(a100, 60, 0)}}, asks: pod{"q", amounts(a100, 41, 0)},
			want: `queue "q" uses 60GiB of 100GiB volcano.sh/vgpu-memory: 41GiB more is 1GiB too much`,
		},
		"compute": {
			queues: map[string]string{"q": "memory=100 cores=150"}, run: []pod{{"q", amounts(a100, 1, 100)}}, asks: pod{"q", amounts(a100, 1, 60)},
			want: `queue "q" uses 100 percent of 150 percent volcano.sh/vgpu-cores: 60 percent more is 10 percent too much`,
		},
		"a pod without compute in a queue that uses too much of it": {
			queues: map[string]string{"q": "cores=50"}, run: []pod{{"q", amounts(a100, 1, 100)}}, asks: pod{"q", amounts(a100, 1, 0)},
		},
		"other queues count for themselves": {
			queues: map[string]string{"q": "memory=100", "r": ""}, run: []pod{{"r", amounts(a100, 90, 0)}}, asks: pod{"q", amounts(a100, 100, 0)},
		},
		"the queue above is full": {
			queues: map[string]string{"top": "memory=100", "q<top": "memory=80", "r<top": ""},
			run:    []pod{{"r", amounts(a100, 70, 0)}}, asks: pod{"q", amounts(a100, 40, 0)},
			want: `queue "top" uses 70GiB of 100GiB volcano.sh/vgpu-memory: 40GiB more is 10GiB too much`,
		},
		"of two the nearest is named": {
			queues: map[string]string{"top": "memory=10", "q<top": "memory=20"}, asks: pod{"q", amounts(a100, 30, 0)},
			want: `queue "q" uses 0 of 20GiB volcano.sh/vgpu-memory: 30GiB more is 10GiB too much`,
		},
		"the root queue is above a queue that names no parent": {
			queues: map[string]string{"root": "memory=10", "q": ""}, asks: pod{"q", amounts(a100, 11, 0)},
			want: `queue "root" uses 0 of 10GiB volcano.sh/vgpu-memory: 11GiB more is 1GiB too much`,
		},
		"queues that are above each other hang below the root": {
			queues: map[string]string{"root": "memory=10", "q<r": "", "r<q": "memory=5"}, asks: pod{"q", amounts(a100, 6, 0)},
			want: `queue "r" uses 0 of 5GiB volcano.sh/vgpu-memory: 6GiB more is 1GiB too much`,
		},
		"a model": {
			queues: map[string]string{"q": "memory.a100=80"}, run: []pod{{"q", amounts(a100, 80, 0)}, {"q", amounts(a10, 24, 0)}}, asks: pod{"q", amounts(a100, 1, 0)},
			want: `queue "q" uses 80GiB of 80GiB volcano.sh/vgpu-memory.a100: 1GiB more is 1GiB too much`,
		},
		"another model whose name begins the same": {
			queues: map[string]string{"q": "memory.a10=0"}, asks: pod{"q", amounts(a100, 80, 0)},
		},
		"a model that is not known yet": {
			queues: map[string]string{"q": "memory.a100=0"}, asks: pod{"q", amounts("", 80, 0)},
		},
	} {
		t.Run(name, c.check)
	}
}

func TestWhatTheGuaranteesOfOthersRefuse(t *testing.T) {
	for name, c := range map[string]queueCase{
		"what is guaranteed to others is left to them": {
			queues: map[string]string{"q": "", "r": "|memory=700"}, run: []pod{{"q", amounts(a100, 300, 0)}}, asks: pod{"q", amounts(a100, 41, 0)},
			want: `queue "q" uses 300GiB of the 324GiB that the guarantees of other queues leave it of volcano.sh/vgpu-memory: 41GiB more is 17GiB too much`,
		},
		"its own guarantee is left to a queue, whatever others were promised": {
			queues: map[string]string{"q": "|memory=300", "r": "|memory=2000"}, asks: pod{"q", amounts(a100, 300, 0)},
		},
		"a guarantee next to the queue above": {
			queues: map[string]string{"top": "", "q<top": "", "r": "|memory=1000"}, asks: pod{"q", amounts(a100, 25, 0)},
			want: `queue "q" uses 0 of the 24GiB that the guarantees of other queues leave it of volcano.sh/vgpu-memory: 25GiB more is 1GiB too much`,
		},
		"a guarantee within the capability of the queue above": {
			queues: map[string]string{"top": "memory=100", "q<top": "", "r<top": "|memory=60"}, asks: pod{"q", amounts(a100, 41, 0)},
			want: `queue "q" uses 0 of the 40GiB that the guarantees of other queues leave it of volcano.sh/vgpu-memory: 41GiB more is 1GiB too much`,
		},
	} {
		t.Run(name, c.check)
	}
}

// check asks a book for what the case asks for.
func (c queueCase) check(t *testing.T) {
	var queues []quota.Queue
	for key, text := range c.queues {
		name, parent, _ := strings.Cut(key, "<")
		most, least, _ := strings.Cut(text, "|")
		queues = append(queues, quota.Queue{Name: name, Parent: parent, Capability: limits(t, most), Guarantee: limits(t, least)})
	}
	b := quota.NewBook(quota.NewHierarchy(queues, amounts(a100, 1024, 1600)))
	for i, p := range c.run {
		b.Put(sharing.Owner(fmt.Sprint("run", i)), b.Account(p.queue), p.takes, quota.Stays)
	}
	short, refused := b.Check(&quota.Ask{Owner: "new", Account: b.Account(c.asks.queue), Amounts: c.asks.takes})
	if got := short.String(); refused != (c.want != "") || refused && got != c.want {
		t.Errorf("refused: %v: %s\nwant %s", refused, got, c.want)
	}
}

// Pods that are leaving hold what they have until they have ended, and pods that wait for them get
// it only then.
func TestAPodThatLeavesHoldsWhatItHas(t *testing.T) {
	b := quota.NewBook(quota.NewHierarchy([]quota.Queue{{Name: "top", Capability: limits(t, "memory=100")}, {Name: "q", Parent: "top"}}, nil))
	b.Put("stays", b.Account("q"), amounts("", 30, 0), quota.Stays)
	b.Put("leaves", b.Account("q"), amounts("", 50, 0), quota.Leaves)
	for _, c := range []struct {
		what    string
		memory  int64
		now     bool
		arrives int64 // what a pod takes that waits for the one that leaves
		want    string
	}{
		{what: "what is left now", memory: 20, now: true},
		{what: "what is left later", memory: 70},
		{what: "more than is left now", memory: 30, now: true,
			want: `queue "top" uses 80GiB of 100GiB volcano.sh/vgpu-memory: 30GiB more is 10GiB too much until pods that were deleted have ended, which still hold 50GiB`},
		{what: "more than there ever is", memory: 71, now: true, want: `queue "top" uses 30GiB of 100GiB volcano.sh/vgpu-memory: 71GiB more is 1GiB too much`},
		{what: "beside a pod that waits, now", memory: 20, now: true, arrives: 50},
		{what: "what was promised to another one", memory: 20, arrives: 51, want: `queue "top" uses 81GiB of 100GiB volcano.sh/vgpu-memory: 20GiB more is 1GiB too much`},
		{what: "what was promised to another one, now", memory: 20, now: true, arrives: 51, want: `queue "top" uses 81GiB of 100GiB volcano.sh/vgpu-memory: 20GiB more is 1GiB too much`},
	} {
		b.Put("arrives", b.Account("q"), amounts("", c.arrives, 0), quota.Arrives)
		short, refused := b.Check(&quota.Ask{Owner: "new", Account: b.Account("q"), Amounts: amounts("", c.memory, 0), Now: c.now})
		if got := short.String(); refused != (c.want != "") || refused && got != c.want {
			t.Errorf("%s: refused: %v: %s\nwant %s", c.what, refused, got, c.want)
		}
	}
}

func TestPodsThatCountAsGone(t *testing.T) {
	queues := []quota.Queue{
		{Name: "top", Capability: limits(t, "memory=100")},
		{Name: "q", Parent: "top"}, {Name: "r", Parent: "top"}, {Name: "else"},
	}
	b := quota.NewBook(quota.NewHierarchy(queues, nil))
	b.Put("a", b.Account("q"), amounts("", 30, 0), quota.Stays)
	b.Put("b", b.Account("r"), amounts("", 60, 0), quota.Stays)
	b.Put("c", b.Account("else"), amounts("", 60, 0), quota.Stays)
	for name, c := range map[string]struct {
		ask  quota.Ask
		fits bool
	}{
		"nobody":                        {quota.Ask{Owner: "new", Account: b.Account("q"), Amounts: amounts("", 20, 0)}, false},
		"one of the queue":              {quota.Ask{Owner: "new", Account: b.Account("q"), Amounts: amounts("", 40, 0), Gone: []sharing.Owner{"a"}}, true},
		"the same one twice":            {quota.Ask{Owner: "new", Account: b.Account("q"), Amounts: amounts("", 60, 0), Gone: []sharing.Owner{"a", "a"}}, false},
		"one next to the queue":         {quota.Ask{Owner: "new", Account: b.Account("q"), Amounts: amounts("", 70, 0), Gone: []sharing.Owner{"b"}}, true},
		"one elsewhere":                 {quota.Ask{Owner: "new", Account: b.Account("q"), Amounts: amounts("", 20, 0), Gone: []sharing.Owner{"c", "unknown"}}, false},
		"itself":                        {quota.Ask{Owner: "a", Account: b.Account("q"), Amounts: amounts("", 40, 0)}, true},
		"all of the other queues":       {quota.Ask{Owner: "new", Account: b.Account("q"), Amounts: amounts("", 70, 0), Alone: true}, true},
		"all of the other queues, less": {quota.Ask{Owner: "new", Account: b.Account("q"), Amounts: amounts("", 71, 0), Alone: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if short, refused := b.Check(&c.ask); refused == c.fits {
				t.Errorf("refused: %v: %s", refused, short.String())
			}
		})
	}
}

func TestWhatAQueueDeservesAndKeeps(t *testing.T) {
	queues := []quota.Queue{
		{Name: "q", Deserved: limits(t, "memory=100 cores=200")},
		{Name: "safe", Deserved: limits(t, "memory=10"), Guarantee: limits(t, "memory=50")},
		{Name: "free"},
	}
	b := quota.NewBook(quota.NewHierarchy(queues, nil))
	b.Put("a", b.Account("q"), amounts("", 80, 100), quota.Stays)
	b.Put("b", b.Account("q"), amounts("", 40, 100), quota.Stays)
	b.Put("s", b.Account("safe"), amounts("", 40, 0), quota.Stays)
	b.Put("t", b.Account("safe"), amounts("", 40, 0), quota.Stays)
	b.Put("f", b.Account("free"), amounts("", 40, 0), quota.Stays)

	deserves := func(queue string, memory, cores int64, gone ...sharing.Owner) bool {
		_, beyond := b.Deserves(&quota.Ask{Owner: "new", Account: b.Account(queue), Amounts: amounts("", memory, cores), Gone: gone})
		return !beyond
	}
	for name, c := range map[string]struct{ got, want bool }{
		"more than is deserved":                       {deserves("q", 1, 0), false},
		"nothing more":                                {deserves("q", 0, 0), true},
		"as much as one leaves":                       {deserves("q", 20, 100, "b"), true},
		"more than one leaves":                        {deserves("q", 21, 0, "b"), false},
		"what is guaranteed is deserved":              {deserves("safe", 10, 0, "s"), true},
		"a queue without a number":                    {deserves("free", 1<<20, 1<<20), true},
		"a queue nobody knows":                        {deserves("nobody", 1, 1), true},
		"a queue above what it deserves gives":        {b.Keeps("b", nil, false), false},
		"then it has no more than it deserves":        {b.Keeps("a", []sharing.Owner{"b"}, false), true},
		"who needs no devices asks for guarantees":    {b.Keeps("a", []sharing.Owner{"b"}, true), false},
		"a guarantee":                                 {b.Keeps("t", nil, false), true},
		"a guarantee, of who needs no devices":        {b.Keeps("t", nil, true), true},
		"a queue without numbers gives":               {b.Keeps("f", nil, false), false},
		"a pod that nobody knows has nothing to keep": {b.Keeps("nobody", nil, false), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v", name, c.got)
		}
	}
}

func TestAPodMayBeRefusedWhereItsQueueOrOneAboveHasACapability(t *testing.T) {
	for name, c := range map[string]struct {
		queue quota.Queue
		want  bool
	}{
		"no limit":     {quota.Queue{Name: "q"}, false},
		"a capability": {quota.Queue{Name: "q", Capability: limits(t, "memory=1")}, true},
		"a guarantee":  {quota.Queue{Name: "q", Guarantee: limits(t, "memory=1")}, false},
		"deserved":     {quota.Queue{Name: "q", Deserved: limits(t, "memory=1")}, false},
	} {
		h := quota.NewHierarchy([]quota.Queue{c.queue, {Name: "r", Parent: "q"}}, nil)
		if got := quota.NewBook(h).Limited(h.Account("r")); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
