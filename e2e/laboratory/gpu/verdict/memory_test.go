// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// misses checks what a finding complains of: every wanted text once, in order, and
// nothing else. No wanted text means that it holds.
func misses(t *testing.T, f Finding, want ...string) {
	t.Helper()
	if len(f.Misses) != len(want) {
		t.Errorf("misses %q, want %d: %q", f.Misses, len(want), want)
		return
	}
	for i, text := range want {
		if !strings.Contains(f.Misses[i], text) {
			t.Errorf("miss %q, want one that says %q", f.Misses[i], text)
		}
	}
	if f.Criterion == "" || f.Measured == "" {
		t.Errorf("criterion %q and measured %q: a row needs both", f.Criterion, f.Measured)
	}
}

func TestIdentity(t *testing.T) {
	same := Compared{"total", "5", "5"}
	misses(t, Identity([]Compared{same}))
	misses(t, Identity([]Compared{same, {"name", "a", "b"}}), `name: "a" bare, "b" with`)
	misses(t, Identity(nil), "nothing")
}

func TestSees(t *testing.T) {
	misses(t, Sees(8*MiB, []Amount{{"CUDA", 8 * MiB}, {"NVML", 8 * MiB}}))
	misses(t, Sees(8*MiB, []Amount{{"CUDA", 8 * MiB}, {"NVML", 9 * MiB}}), "NVML is 9 MiB")
	misses(t, Sees(8*MiB, nil), "nothing")
}

func TestFill(t *testing.T) {
	good := Filled{Limit: 8192 * MiB, Overhead: 518 * MiB, Got: 7674 * MiB, Code: 2, Really: 8192 * MiB}
	cases := map[string]struct {
		change func(*Filled)
		want   []string
	}{
		"exactly full":                         {func(*Filled) {}, nil},
		"one page below":                       {func(m *Filled) { m.Got -= 2 * MiB }, nil},
		"a page and a byte below":              {func(m *Filled) { m.Got -= 2*MiB + 1 }, []string{"stopped 2.0 MiB below"}},
		"below by the code that was loaded":    {func(m *Filled) { m.Got, m.Late = m.Got-8*MiB, 6*MiB }, nil},
		"below by more than that":              {func(m *Filled) { m.Got, m.Late = m.Got-10*MiB, 6*MiB }, []string{"stopped 10 MiB below"}},
		"one byte above":                       {func(m *Filled) { m.Got++ }, []string{"above the limit"}},
		"another error than out of memory":     {func(m *Filled) { m.Code = 1 }, []string{"CUDA error 1"}},
		"never refused":                        {func(m *Filled) { m.Code = 0 }, []string{"CUDA error 0"}},
		"the card gave far more than it says":  {func(m *Filled) { m.Really += 200 * MiB }, []string{"the card gave 200 MiB more"}},
		"the card's account could not be had":  {func(m *Filled) { m.Really = 0 }, nil},
		"the card's account within its spread": {func(m *Filled) { m.Really += 80 * MiB }, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := good
			c.change(&m)
			misses(t, Fill(OnCard(), m), c.want...)
		})
	}
}

func TestCounts(t *testing.T) {
	misses(t, Counts(OnCard(), []Count{{"a", 100 * MiB, 100 * MiB}, {"b", 97 * MiB, 100 * MiB}}))
	misses(t, Counts(OnCard(), []Count{{"a", 100 * MiB, 100 * MiB}, {"b", 96 * MiB, 100 * MiB}}), "b: own 96 MiB, card 100 MiB")
	misses(t, Counts(OnCard(), []Count{{"c", 104 * MiB, 100 * MiB}}), "c: own")
	misses(t, Counts(OnCard(), nil), "nothing")
}

func TestEach(t *testing.T) {
	f := Each("all", []Tried{{"link", nil}, {"dlsym", errors.New("went through")}})
	misses(t, f, "dlsym: went through")
	if !strings.HasPrefix(f.Measured, "1 of 2") {
		t.Errorf("measured %q", f.Measured)
	}
	misses(t, Each("all", []Tried{{"link", nil}}))
	misses(t, Each("all", nil), "nothing")
}

func TestPooled(t *testing.T) {
	good := Pool{Limit: 8192 * MiB, Before: 518 * MiB, Got: 7648 * MiB, Full: 8166 * MiB, Code: 2, After: 518 * MiB}
	cases := map[string]struct {
		change func(*Pool)
		want   []string
	}{
		"within a granule":          {func(*Pool) {}, nil},
		"above the limit":           {func(m *Pool) { m.Full = m.Limit + MiB }, []string{"1 MiB above"}},
		"two granules below":        {func(m *Pool) { m.Got -= 64 * MiB }, []string{"stopped 90 MiB below"}},
		"the wrong error":           {func(m *Pool) { m.Code = 999 }, []string{"999"}},
		"keeps a little":            {func(m *Pool) { m.After += 2 * MiB }, nil},
		"keeps memory":              {func(m *Pool) { m.After += 3 * MiB }, []string{"the program's account differs by 3 MiB"}},
		"keeps it from the program": {func(m *Pool) { m.CardAfter = 3 * MiB }, []string{"the card's account differs"}},
		"counts too much back":      {func(m *Pool) { m.After -= 3 * MiB }, []string{"differs by -3 MiB"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := good
			c.change(&m)
			misses(t, Pooled(OnCard(), m), c.want...)
		})
	}
}

func TestHandles(t *testing.T) {
	misses(t, Handles(Physical{512, 10, 522, 522, 522, 10}))
	misses(t, Handles(Physical{512, 10, 522, 522, 10, 10}), "released early: 0 bytes in use, want 512")
	misses(t, Handles(Physical{512, 10, 10, 522, 522, 522}), "made: 0", "unmapped: 512")
}

func TestTorchFills(t *testing.T) {
	good := Torch{Limit: 8192 * MiB, Total: 8192 * MiB, Got: 7648 * MiB, Card: 8180 * MiB, Caught: "OutOfMemoryError", Recovered: true}
	cases := map[string]struct {
		change func(*Torch)
		want   []string
	}{
		"as it should":         {func(*Torch) {}, nil},
		"another exception":    {func(m *Torch) { m.Caught = "RuntimeError" }, []string{"caught RuntimeError"}},
		"the wrong allocator":  {func(m *Torch) { m.Wanted, m.Backend = "cudaMallocAsync", "native" }, []string{"native, not cudaMallocAsync"}},
		"another total":        {func(m *Torch) { m.Total = 0 }, []string{"mem_get_info says 0 MiB"}},
		"32 MiB over":          {func(m *Torch) { m.Card = 8224 * MiB }, nil},
		"33 MiB over":          {func(m *Torch) { m.Card = 8225 * MiB }, []string{"33 MiB over"}},
		"half of it":           {func(m *Torch) { m.Got = 4096 * MiB }, []string{"80 %"}},
		"dead afterwards":      {func(m *Torch) { m.Recovered = false }, []string{"did not go on"}},
		"nothing at all wrong": {func(m *Torch) { m.Wanted, m.Backend = "native", "native" }, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := good
			c.change(&m)
			misses(t, TorchFills(OnCard(), m), c.want...)
		})
	}
}

func TestView(t *testing.T) {
	least := map[int]int64{11: 512 * MiB, 12: 512 * MiB}
	rows := func(a, b int64) map[int]int64 { return map[int]int64{11: a * MiB, 12: b * MiB} }
	misses(t, View(8192*MiB, least, Viewed{Total: 8192 * MiB, Used: 2060 * MiB, Rows: rows(1030, 1030)}))
	misses(t, View(8192*MiB, least, Viewed{Total: 8192 * MiB, Used: 2062 * MiB, Rows: rows(1030, 1030), Rounding: MiB}))
	misses(t, View(8192*MiB, least, Viewed{Total: 9000 * MiB, Used: 2070 * MiB, Rows: rows(1030, 1030)}), "total is 9000", "differs from the sum by 10")
	misses(t, View(8192*MiB, least, Viewed{Total: 8192 * MiB, Used: 1530 * MiB, Rows: rows(1030, 500)}), "process 12 has 500 MiB")
	misses(t, View(8192*MiB, least, Viewed{Total: 8192 * MiB, Used: 1030 * MiB, Rows: map[int]int64{11: 1030 * MiB}}), "process 12 is not listed")
	foreign := rows(1030, 1030)
	foreign[99] = 0
	misses(t, View(8192*MiB, least, Viewed{Total: 8192 * MiB, Used: 2060 * MiB, Rows: foreign}), "process 99 is listed")
}

func TestRace(t *testing.T) {
	good := Raced{Limit: 16384 * MiB, Peak: 16384 * MiB, Processes: 16, Dead: 8, Left: 28 * MiB, Granule: 32 * MiB, Freed: 99 * time.Millisecond, Again: 4000 * MiB, Want: 4000 * MiB}
	cases := map[string]struct {
		change func(*Raced)
		want   []string
	}{
		"as it should":           {func(*Raced) {}, nil},
		"above":                  {func(m *Raced) { m.Peak += 500 * MiB }, []string{"500 MiB above"}},
		"refused too early":      {func(m *Raced) { m.Left = 64 * MiB }, []string{"refused with 64 MiB left"}},
		"freed late":             {func(m *Raced) { m.Freed = 101 * time.Millisecond }, []string{"only after 101 ms"}},
		"not given again":        {func(m *Raced) { m.Again = 3000 * MiB }, []string{"only 3000 MiB"}},
		"given again but a rest": {func(m *Raced) { m.Again -= 64 * MiB }, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := good
			c.change(&m)
			misses(t, Race(OnCard(), m), c.want...)
		})
	}
}

func TestStarts(t *testing.T) {
	misses(t, Starts(OnCard(), []float64{0.5, 0.5}, []float64{0.6, 0.64}))
	misses(t, Starts(OnCard(), []float64{0.5, 0.5}, []float64{0.6, 0.66}), "bound is 650 ms")
	misses(t, Starts(OnCard(), nil, nil), "bound is")
}

func TestInventory(t *testing.T) {
	misses(t, Inventory(Offered{100, 100, 4, 35}))
	misses(t, Inventory(Offered{101, 100, 4, 35}), "1 bytes too many")
	misses(t, Inventory(Offered{-1, 100, 4, 0}), "not in the inventory", "no driver")
}
