// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"

	"deviceshare/view/simulate"
)

// traceColumns are all columns of a trace, as docs/simulate.md lists them.
var traceColumns = strings.Split("arrival duration devices memory_mib cores name cpu_milli ram_mib queue priority_class policy mode", " ")

// traceText writes pods as a trace.
func traceText(t testing.TB, pods []simulate.TracePod) string {
	t.Helper()
	rows := [][]string{traceColumns}
	for _, p := range pods {
		row := []string{}
		for _, v := range []any{p.Arrival, p.Duration, p.Devices, p.Memory, p.Cores, p.Name, p.CPU, p.RAM, p.Queue, p.Priority, p.Policy, p.Mode} {
			row = append(row, fmt.Sprint(v))
		}
		rows = append(rows, row)
	}
	var out bytes.Buffer
	if err := csv.NewWriter(&out).WriteAll(rows); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func FuzzReadTrace(f *testing.F) {
	f.Add("arrival,duration,devices\n0,600,1\n")
	f.Add("mode, arrival,duration,devices,name\nmig,7,1,0,\"a,b\"\n,3,1,64,c\n")
	f.Add("arrival,duration,devices,memory_mib\n1,1,0,5\n-1,0,65,x\n1\n")
	f.Add("arrival,arrival\n\n\"")
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := simulate.ReadTrace(strings.NewReader(text))
		if err != nil {
			if len(err.Error()) > 100*(len(text)+100) {
				t.Errorf("%d bytes of trace are told as %d bytes of mistakes", len(text), len(err.Error()))
			}
			return
		}
		names := map[string]bool{}
		for _, p := range pods {
			names[p.Name] = true
			if p.Arrival < 0 || p.Duration < 1 || p.Devices < 0 || p.Memory < 0 || p.Arrival+p.Duration < p.Arrival {
				t.Errorf("accepted %+v", p)
			}
		}
		if len(names) != len(pods) || !slices.IsSortedFunc(pods, func(a, b simulate.TracePod) int { return cmp.Compare(a.Arrival, b.Arrival) }) {
			t.Errorf("pods have equal names or are out of order: %+v", pods)
		}
		again, err := simulate.ReadTrace(strings.NewReader(traceText(t, pods)))
		if err != nil || !slices.Equal(again, pods) {
			t.Errorf("written and read again: %v\n%+v\n%+v", err, again, pods)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod}]\n")
	f.Add(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List","items":[null,7,[]]}]}`)
	f.Add("apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nspec: {minMember: 3}\n")
	f.Fuzz(func(t *testing.T, text string) {
		added, err := simulate.Decode(strings.NewReader(text), "home")
		if err != nil {
			return
		}
		for _, p := range added.Pods {
			if p.Namespace == "" {
				t.Errorf("a pod without a namespace of %q", text)
			}
		}
	})
}
