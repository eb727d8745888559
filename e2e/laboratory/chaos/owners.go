// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/prometheus/procfs"
)

// member is a process of a container of the cluster.
type member struct {
	owner
	host    int    // its number on this machine
	cluster int    // its number in the cluster's namespace
	program string // what it runs, see programOf
}

// inContainer matches a cgroup of a container: its pod's UID and its own ID.
var inContainer = regexp.MustCompile(`/pod([0-9a-f-]{36})/([0-9a-f]{64})`)

// members are the processes of containers below a cgroup. Processes that end while they are read
// are left out.
func members(proc procfs.FS, cgroup string) ([]member, error) {
	all, err := proc.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []member
	for _, p := range all {
		groups, err := p.Cgroups()
		if err != nil {
			continue
		}
		own, ok := ownerOf(groups, cgroup)
		if !ok {
			continue
		}
		status, err := p.NewStatus()
		if err != nil || len(status.NSpids) < 2 {
			continue
		}
		out = append(out, member{owner: own, host: p.PID, cluster: int(status.NSpids[1]), program: programOf(p)})
	}
	return out, nil
}

// programOf names what a process runs: its file, and "keep" after the device plugin's in its other
// role. The name of a process that is ending is a dot.
func programOf(p procfs.Proc) string {
	file, _ := p.Executable()
	if args, err := p.CmdLine(); err == nil && len(args) > 1 && args[1] == "keep" {
		return filepath.Base(file) + " keep"
	}
	return filepath.Base(file)
}

// alive are the containers that have a process which works, both times. A process that is ending
// has no program any more.
func alive(before, after []member) map[string]bool {
	was := map[string]bool{}
	for _, m := range before {
		was[m.container] = was[m.container] || m.works()
	}
	out := map[string]bool{}
	for _, m := range after {
		if m.works() && was[m.container] {
			out[m.container] = true
		}
	}
	return out
}

func (m member) works() bool { return m.program != "." }

// ownerOf finds the container in the cgroups of a process.
func ownerOf(groups []procfs.Cgroup, cgroup string) (owner, bool) {
	for _, g := range groups {
		if m := inContainer.FindStringSubmatch(g.Path); m != nil && strings.Contains(g.Path, cgroup+"/") {
			return owner{pod: m[1], container: m[2]}, true
		}
	}
	return owner{}, false
}
