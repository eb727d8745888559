// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strconv"
	"strings"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing/quota"
)

// NamespaceLimit is one limit of devices in a ResourceQuota.
type NamespaceLimit struct {
	Namespace string `json:"namespace"`
	Quota     string `json:"resourceQuota"`
	Resource  string `json:"resource"`
	// Limit and Used are bytes of memory, percent of one device, or shares.
	Limit int64 `json:"limit"`
	Used  int64 `json:"used"`
	// Shown are the same amounts for people, with their units.
	Shown ShownLimit `json:"shown"`
}

// ShownLimit are amounts of a limit for people.
type ShownLimit struct {
	Limit string `json:"limit"`
	Used  string `json:"used"`
}

// NamespaceLimits lists what the pods of namespaces may have of devices by ResourceQuotas, and what
// they have.
func (c *Cluster) NamespaceLimits() []NamespaceLimit {
	quotas := c.settings.NamespaceQuotas(c.state.Quotas)
	all := make([]quota.NamespaceQuota, 0, len(quotas))
	for i := range quotas {
		all = append(all, quotas[i].NamespaceQuota)
	}
	book := quota.NewBook(quota.NewHierarchy(nil, nil, all...))
	for _, n := range c.nodes {
		if n.Ledger == nil {
			continue
		}
		for _, owner := range n.Ledger.Owners() {
			pod, known := c.owners[owner]
			held, holds := n.Ledger.Placement(owner)
			if !known || !holds {
				continue
			}
			book.Put(owner, book.Account("", nodes.QuotaKeys(quotas, pod)...), quota.Held(&held, n.Inventory), quota.Stays)
		}
	}
	out := []NamespaceLimit{}
	for _, u := range book.UsageOf(all) {
		out = append(out, NamespaceLimit{
			Namespace: u.Namespace, Quota: u.Quota, Resource: u.Limit.Name, Limit: u.Limit.Amount, Used: u.Used,
			Shown: ShownLimit{Limit: limitText(u.Limit.Resource, u.Limit.Amount), Used: limitText(u.Limit.Resource, u.Used)},
		})
	}
	return out
}

// limitText writes an amount of devices with its unit.
func limitText(of quota.Resource, amount int64) string {
	switch of {
	case quota.Cores:
		return strconv.FormatInt(amount, 10) + "%"
	case quota.Number:
		return strconv.FormatInt(amount, 10)
	}
	return memoryText(amount)
}

// NamespaceLimitsText writes limits of namespaces as a table.
func NamespaceLimitsText(list []NamespaceLimit, p Paint) string {
	if len(list) == 0 {
		return "No ResourceQuota limits devices: see docs/queues.md.\n"
	}
	t := table{}
	t.addRow("NAMESPACE", "RESOURCEQUOTA", "RESOURCE", "LIMIT", "USED")
	for _, l := range list {
		t.addRow(l.Namespace, l.Quota, l.Resource, l.Shown.Limit, l.Shown.Used)
	}
	var b strings.Builder
	t.writeRows(&b, p)
	return b.String()
}
