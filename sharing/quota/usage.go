// SPDX-License-Identifier: Apache-2.0

package quota

// Usage is what the pods of a namespace have of one limit.
type Usage struct {
	Namespace, Quota string
	Limit            Limit
	// Used is in the unit of the limit: what pods have that stay or leave.
	Used int64
}

// UsageOf returns what is used of each limit of quotas, in their order.
func (b *Book) UsageOf(quotas []NamespaceQuota) (all []Usage) {
	for i := range quotas {
		q := &quotas[i]
		for j := range q.Limits {
			all = append(all, Usage{
				Namespace: q.Namespace, Quota: q.Name, Limit: q.Limits[j],
				Used: b.usedBy(q.Key(), &q.Limits[j], true, nil),
			})
		}
	}
	return all
}
