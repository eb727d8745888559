// SPDX-License-Identifier: Apache-2.0

// Package page serves the ledgers of a scheduler as JSON: who holds what of which device.
package page

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"k8s.io/klog/v2"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
)

// Path is where Handler is meant to be served, to those who may see the pods of all tenants.
const Path = "/deviceshare/ledger"

// nodeText is one node in the answer of Handler.
type nodeText struct {
	Unusable string               `json:"unusable,omitempty"`
	Warming  bool                 `json:"warming,omitempty"`
	Devices  []deviceText         `json:"devices"`
	Owners   map[string]ownerText `json:"owners"`
	Blocked  []string             `json:"blocked"`
	Problems []string             `json:"problems"`
}

type deviceText struct {
	ID         string `json:"id"`
	Index      int    `json:"index"`
	Model      string `json:"model"`
	Mode       string `json:"mode"`
	Healthy    bool   `json:"healthy"`
	Reason     string `json:"reason,omitempty"`
	Cordoned   bool   `json:"cordoned,omitempty"`
	Memory     int64  `json:"memoryBytes"`
	UsedMemory int64  `json:"usedMemoryBytes"`
	Cores      int    `json:"coresPercent"`
	UsedCores  int    `json:"usedCoresPercent"`
	MaxShares  int    `json:"maxShares"`
	Shares     int    `json:"shares"`
}

type ownerText struct {
	Assumed bool        `json:"assumed,omitempty"`
	Group   string      `json:"group,omitempty"`
	Shares  []shareText `json:"shares"`
}

type shareText struct {
	Container string `json:"container"`
	Device    string `json:"device"`
	Mode      string `json:"mode"`
	Memory    int64  `json:"memoryBytes"`
	Cores     int    `json:"coresPercent,omitempty"`
	Whole     bool   `json:"whole,omitempty"`
	Profile   string `json:"profile,omitempty"`
	Start     int    `json:"start,omitempty"`
}

// Handler answers with the ledgers of a cluster as JSON: by node, which devices
// it has, who holds what of them, and which pods cannot be read. The query
// parameter "node" asks for one node. It shows the last snapshot together with
// what was assumed by then, not the reservations of a session that is open.
//
// The answer is made node by node while it is read. A slow reader holds no lock and
// no text of its own, only nodes that a later snapshot may have replaced. It is served behind
// endpoint.Access.Guard, which lets GET through alone.
func Handler(c *nodes.Cluster) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := copyLedgers(c)
		if only := r.URL.Query().Get("node"); only != "" {
			n, known := shown.nodes[only]
			if !known {
				http.Error(w, "no such node in the scheduler's last snapshot", http.StatusNotFound)
				return
			}
			shown.nodes = map[string]*nodes.Node{only: n}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := shown.writeJSON(w); err != nil {
			klog.V(2).InfoS("Answer of "+Path+" was cut short", "err", err)
		}
	})
}

// ledgers are what an answer is made of. Nobody else changes them.
type ledgers struct {
	nodes   map[string]*nodes.Node
	awaited map[string]string
	assumed map[sharing.Owner]struct{}
}

// copyLedgers takes what an answer is made of from the cluster.
func copyLedgers(c *nodes.Cluster) ledgers {
	pods := c.Pods()
	return ledgers{nodes: c.Copy(), awaited: pods.Awaited(), assumed: pods.Assumed()}
}

// writeJSON writes the answer in pieces, each as json.Encoder would have it in the whole.
func (l ledgers) writeJSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprint(out, "{\n  \"nodes\": {") // errors stay in the buffer until Flush
	for i, name := range slices.Sorted(maps.Keys(l.nodes)) {
		key, err := json.Marshal(name)
		if err != nil {
			return fmt.Errorf("encode the name of node %s: %w", name, err)
		}
		value, err := json.MarshalIndent(l.describeNode(l.nodes[name]), "    ", "  ")
		if err != nil {
			return fmt.Errorf("encode node %s: %w", name, err)
		}
		if i > 0 {
			fmt.Fprint(out, ",")
		}
		if _, err := fmt.Fprintf(out, "\n    %s: %s", key, value); err != nil {
			return fmt.Errorf("write node %s: %w", name, err)
		}
	}
	fmt.Fprint(out, "\n  },\n  \"version\": 1\n}\n")
	return out.Flush()
}

func (l ledgers) describeNode(n *nodes.Node) nodeText {
	out := nodeText{
		Devices: []deviceText{}, Owners: map[string]ownerText{},
		Blocked: []string{}, Problems: []string{},
	}
	if n.Unusable != nil {
		out.Unusable = n.Unusable.Error()
	}
	_, out.Warming = l.awaited[n.Name]
	for p := range n.Problems() {
		out.Problems = append(out.Problems, p.Message)
	}
	slices.Sort(out.Problems)
	if n.Inventory == nil {
		return out
	}
	views := n.Ledger.Views()
	for i := range views {
		out.Devices = append(out.Devices, describeDevice(&views[i]))
	}
	for _, o := range n.Ledger.Owners() {
		p, _ := n.Ledger.Placement(o)
		_, assumed := l.assumed[o]
		out.Owners[string(o)] = ownerText{Assumed: assumed, Group: p.Group, Shares: describeShares(&p)}
	}
	for _, o := range n.Ledger.Blocking() {
		out.Blocked = append(out.Blocked, string(o))
	}
	return out
}

func describeDevice(v *sharing.View) deviceText {
	d := v.Device
	return deviceText{
		ID: string(d.ID), Index: d.Index, Model: d.Model, Mode: string(d.Mode), Healthy: d.Healthy, Reason: d.Reason, Cordoned: d.Cordon != nil,
		Memory: int64(d.Memory), UsedMemory: int64(v.UsedMemory()),
		Cores: int(d.Cores), UsedCores: int(v.UsedCores()),
		MaxShares: d.MaxShares, Shares: v.Sharers(),
	}
}

func describeShares(p *sharing.Placement) []shareText {
	out := []shareText{}
	for i := range p.Containers {
		c := &p.Containers[i]
		for _, sh := range c.Shares {
			out = append(out, shareText{
				Container: c.Container, Device: string(sh.Device), Mode: string(sh.Mode),
				Memory: int64(sh.Memory), Cores: int(sh.Cores), Whole: sh.Whole,
				Profile: sh.Partition.Profile, Start: sh.Partition.Start,
			})
		}
	}
	return out
}
