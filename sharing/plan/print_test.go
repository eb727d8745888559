// SPDX-License-Identifier: Apache-2.0

package plan_test

import "fmt"

// String prints the cluster for a person.
func (c *cluster) String() string {
	text := fmt.Sprintf("wish level %d, cpu %d", c.wish.level, c.wish.cpu)
	if c.wish.request != nil {
		text += fmt.Sprintf(", one NUMA node %v, %+v", c.wish.request.OneNUMA, c.wish.request.Requests)
	}
	text += fmt.Sprintf("\ngangs %+v budgets %v givers %v\n", c.gangs, c.budgets, c.givers)
	for i := range c.nodes {
		n := &c.nodes[i]
		text += fmt.Sprintf("n%d cpu %d of %d excluded %v\n", i, n.cpu, n.capacity, n.excluded)
		for _, v := range n.ledger.Views() {
			text += fmt.Sprintf("  %s %s %s, at most %d shares, NUMA %d\n", v.Device.ID, v.Device.Model, v.Device.Mode, v.Device.MaxShares, v.Device.NUMA)
			for _, h := range v.Held() {
				text += fmt.Sprintf("    %s %+v\n", h.Owner, h.Share)
			}
		}
	}
	for i := range c.pods {
		p := &c.pods[i]
		text += fmt.Sprintf("%s on n%d level %d protected %v gang %d role %d budgets %v givers %v give %v turn %d cpu %d grace %d age %d\n",
			p.owner, p.node, p.level, p.isProtected, p.gang, p.role, p.budgets, p.givers, p.gives, p.turn, p.cpu, p.grace, p.age)
	}
	return text
}
