// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// checkPlatform names nodes with devices whose kubelet or container runtime is too old, see "What
// it needs" in docs/install.md.
func (e *examiner) checkPlatform() {
	nodes := map[Trouble][]string{}
	for _, n := range e.cluster.nodes {
		if n.Object == nil || n.Inventory == nil && n.SetAside == nil {
			continue
		}
		info := &n.Object.Status.NodeInfo
		if isBefore(info.KubeletVersion, "1.31.0") {
			t := Trouble{What: "its kubelet is " + info.KubeletVersion + ", devices need 1.31 or later", Do: "upgrade the node"}
			nodes[t] = append(nodes[t], n.Name)
		}
		if of, found := strings.CutPrefix(info.ContainerRuntimeVersion, "containerd://"); found && isBefore(of, "1.7.0") {
			t := Trouble{What: fmt.Sprintf("its container runtime is containerd %s, which reads no CDI specifications: 1.7 or later does", of), Do: "upgrade containerd on the node"}
			nodes[t] = append(nodes[t], n.Name)
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(nodes), func(a, b Trouble) int { return strings.Compare(a.What, b.What) }) {
		e.addProblem(firstOf(nodes[t]), t.What, t.Do)
	}
}

// isBefore reports whether a version is an earlier one. Who writes none that can be read is not
// judged.
func isBefore(text, first string) bool {
	v, err := version.ParseGeneric(text)
	return err == nil && v.LessThan(version.MustParseGeneric(first))
}

// Text writes the findings for people.
func (h *Health) Text(p Paint) string {
	var b strings.Builder
	if len(h.Problems) == 0 {
		b.WriteString("Nothing is wrong.\n")
	} else {
		fmt.Fprintf(&b, "%s\n", p.alarm(countText(len(h.Problems), "problem")+":"))
	}
	for _, t := range h.Problems {
		fmt.Fprintf(&b, "  %s: %s\n    %s\n", plainText(t.On), plainText(t.What), p.faint("do: "+plainText(t.Do)))
	}
	if len(h.Unknown) > 0 {
		fmt.Fprintf(&b, "\n%s\n", p.bold("Not looked at:"))
		for _, u := range h.Unknown {
			fmt.Fprintf(&b, "  %s\n", plainText(u))
		}
	}
	return b.String()
}
