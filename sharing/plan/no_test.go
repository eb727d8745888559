// SPDX-License-Identifier: Apache-2.0

package plan

import "testing"

func TestPeopleAreToldWhyNoEvictionsHelp(t *testing.T) {
	for name, c := range map[string]struct {
		no   No
		want string
	}{
		"nobody could leave anyway": {No{Nodes: [Obstacles]int{Excluded: 1, TooSmall: 2, Important: 3}}, ""},
		"budgets protect some, on however many nodes": {No{Nodes: [Obstacles]int{Important: 1, Budgeted: 7}, Budgets: []string{"ml/a", "ml/b"}},
			"No evictions help: pods are protected by PodDisruptionBudgets: ml/a, ml/b"},
		"more budgets than a text names": {No{Nodes: [Obstacles]int{Budgeted: 1}, Budgets: []string{"a", "b", "c", "d", "e", "f"}},
			"No evictions help: pods are protected by PodDisruptionBudgets: a, b, c, d and 2 more"},
		"a gang would be left in part": {No{Nodes: [Obstacles]int{GangStays: 1}}, "No evictions help: of gangs, only parts could leave"},
		"some pods of a job find room": {No{Fit: 2, Of: 3, Nodes: [Obstacles]int{NotFound: 1}},
			"No evictions help: there would be room for 2 of 3 pods; the search for others gave up"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.no.Advice(); got != c.want {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}
