// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"deviceshare/sharing/quota"
)

// QueueEntries returns what is written in the lists of resources of a queue, in a stable order.
func QueueEntries(capability, deserved, guarantee corev1.ResourceList) []quota.Entry {
	return slices.Concat(entriesIn("capability", capability), entriesIn("deserved", deserved), entriesIn("guarantee", guarantee))
}

// entriesIn returns what is written in one list, in the order of the names.
func entriesIn(field string, list corev1.ResourceList) []quota.Entry {
	var entries []quota.Entry
	for name, amount := range list {
		entries = append(entries, quota.Entry{
			Field: field, Name: string(name), Text: amount.String(), Value: amount.Value(),
			Fraction: amount.Cmp(*resource.NewQuantity(amount.Value(), resource.DecimalSI)) != 0,
		})
	}
	slices.SortFunc(entries, func(a, b quota.Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries
}
