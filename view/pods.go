// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"strconv"
)

// Holding is one share of one container.
type Holding struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Node      string `json:"node"`
	Device    int    `json:"device"`
	Mode      string `json:"mode"`
	Memory    int64  `json:"memory"`
	Cores     int    `json:"cores"`
	Whole     bool   `json:"whole,omitempty"`
	Profile   string `json:"profile,omitempty"`
}

// Pods lists who has what where, of one namespace, or of all with "".
func (c *Cluster) Pods(namespace string) []Holding {
	out := []Holding{}
	for _, n := range c.nodes {
		if n.Ledger == nil {
			continue
		}
		views := n.Ledger.Views()
		for i := range views {
			for _, h := range views[i].Held() {
				row := Holding{
					Pod: string(h.Owner), Container: h.Container, Node: n.Name, Device: views[i].Device.Index, Mode: string(h.Share.Mode),
					Memory: int64(h.Share.Memory), Cores: int(h.Share.Cores), Whole: h.Share.Whole, Profile: h.Share.Partition.Profile,
				}
				if p, ok := c.owners[h.Owner]; ok {
					row.Namespace, row.Pod = p.Namespace, p.Name
				}
				if namespace == "" || row.Namespace == namespace {
					out = append(out, row)
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
	})
	return out
}

func compareSharers(a, b *Sharer) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
}

func itoa(n int) string { return strconv.Itoa(n) }
