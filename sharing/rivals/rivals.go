// SPDX-License-Identifier: Apache-2.0

package rivals

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// By what schedulers are known: program is the name of Volcano's, ours has flags that begin with
// ownPrefix, and ownFlag if it looks for others itself.
const (
	program   = "vc-scheduler"
	ownPrefix = "--deviceshare-"
	ownFlag   = "--deviceshare-deployment"
)

// nameFlag is Volcano's flag of the scheduler names, and defaultName the one without it.
const (
	nameFlag    = "--scheduler-name"
	defaultName = "volcano"
)

// Object names a Deployment or a Lease.
type Object struct{ Namespace, Name string }

func (o Object) String() string { return o.Namespace + "/" + o.Name }

// Container is what decides whether a container runs a scheduler: its image, and its command with
// its arguments.
type Container struct {
	Image string
	Words []string
}

// Deployment is a Deployment of the cluster. Created is in seconds since 1970.
type Deployment struct {
	Object
	Replicas   int32
	Created    int64
	Containers []Container
}

// Lease is a lease that is called after a scheduler name, as that of Volcano's scheduler is.
// Renewed is when its holder says that it renewed it, Before what it said at the previous look, 0
// if there was none; both in microseconds since 1970. Duration is in seconds.
type Lease struct {
	Object
	Holder          string
	Renewed, Before int64
	Duration        int64
}

// Facts are what the cluster shows at one moment.
type Facts struct {
	// Own is the Deployment of this process, and OwnLease the lease for which it competes.
	Own, OwnLease Object
	// Names are the scheduler names of the pods that this process takes.
	Names       []string
	Deployments []Deployment
	Leases      []Lease
	// Now is the clock of this process, in microseconds since 1970.
	Now int64
}

// Kind says by what a rival is known.
type Kind uint8

// The kinds of rivals.
const (
	Volcano   Kind = iota // a Deployment of Volcano's own scheduler
	Twin                  // another Deployment of this program
	LeaseOnly             // a lease that somebody renews, and no Deployment
)

// Rival is another scheduler that takes the same pods. SchedulerName is what both are called.
type Rival struct {
	Object
	Kind          Kind
	SchedulerName string
	Holder        string // of the lease of LeaseOnly
}

// Find returns the schedulers because of which this process must place no pods: Deployments, then
// leases, each in the order of namespace and name. Of several Deployments of this program that look
// for each other, the oldest goes on.
func Find(f *Facts) []Rival {
	var deployments, leases []Rival
	own := ownDeployment(f)
	for i := range f.Deployments {
		d := &f.Deployments[i]
		kind, name := commonName(f.Names, d)
		if name == "" || d.Object == f.Own || d.Replicas == 0 || kind == Twin && willYield(d, own) {
			continue
		}
		deployments = append(deployments, Rival{Object: d.Object, Kind: kind, SchedulerName: name})
	}
	for i := range f.Leases {
		l := &f.Leases[i]
		if l.Object == f.OwnLease || !l.isRenewed(f.Now) || isExplained(l, f.Deployments) {
			continue
		}
		leases = append(leases, Rival{Object: l.Object, Kind: LeaseOnly, SchedulerName: l.Name, Holder: l.Holder})
	}
	slices.SortFunc(deployments, compareObjects)
	slices.SortFunc(leases, compareObjects)
	return append(deployments, leases...)
}

func compareObjects(a, b Rival) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// ownDeployment returns the Deployment of this process. One that is not there counts as the newest.
func ownDeployment(f *Facts) *Deployment {
	for i := range f.Deployments {
		if f.Deployments[i].Object == f.Own {
			return &f.Deployments[i]
		}
	}
	return &Deployment{Object: f.Own, Created: math.MaxInt64}
}

// willYield reports whether a Deployment of this program will find own, and leave the pods to it.
func willYield(d, own *Deployment) bool {
	guarded := slices.ContainsFunc(d.Containers, func(c Container) bool {
		return slices.ContainsFunc(c.Words, func(word string) bool { return strings.HasPrefix(word, ownFlag) })
	})
	order := cmp.Or(cmp.Compare(own.Created, d.Created), cmp.Compare(own.String(), d.String()))
	return guarded && order < 0
}

// commonName returns the first scheduler name that a Deployment serves, too; "" if there is none.
func commonName(names []string, d *Deployment) (Kind, string) {
	for _, c := range d.Containers {
		isVolcano := RunsVolcano(c)
		if !isVolcano && !slices.ContainsFunc(c.Words, func(word string) bool { return strings.HasPrefix(word, ownPrefix) }) {
			continue
		}
		for _, name := range SchedulerNames(c.Words) {
			switch {
			case !slices.Contains(names, name):
			case isVolcano:
				return Volcano, name
			default:
				return Twin, name
			}
		}
	}
	return Volcano, ""
}

// RunsVolcano reports whether a container runs Volcano's own scheduler: its image or its command
// says so.
func RunsVolcano(c Container) bool {
	return strings.Contains(c.Image, program) || slices.ContainsFunc(c.Words, func(word string) bool { return strings.Contains(word, program) })
}

// SchedulerNames returns the scheduler names in the command and arguments of a scheduler. The flag
// may be given several times, each with several names.
func SchedulerNames(words []string) []string {
	var names []string
	for i, word := range words {
		if value, found := strings.CutPrefix(word, nameFlag+"="); found {
			names = append(names, strings.Split(value, ",")...)
		} else if word == nameFlag && i+1 < len(words) {
			names = append(names, strings.Split(words[i+1], ",")...)
		}
	}
	if names == nil {
		return []string{defaultName}
	}
	return names
}

// isRenewed reports whether somebody holds the lease. The clock of the holder may be wrong: a lease
// that has changed since the previous look is renewed, whatever it says.
func (l *Lease) isRenewed(now int64) bool {
	age := max(now-l.Renewed, l.Renewed-now)
	return l.Holder != "" && (age < l.Duration*1e6 || l.Before != 0 && l.Before != l.Renewed)
}

// isExplained reports whether a lease is of a Deployment that is to run: what that serves decides.
// Schedulers begin their identities with the name of their pod.
func isExplained(l *Lease, all []Deployment) bool {
	return slices.ContainsFunc(all, func(d Deployment) bool {
		return d.Replicas != 0 && d.Namespace == l.Namespace && strings.HasPrefix(l.Holder, d.Name+"-")
	})
}

// String says who the rival is, why it is one, and what to do.
func (r Rival) String() string {
	who, do := "Deployment "+r.Object.String(), fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=0", r.Namespace, r.Name)
	switch r.Kind {
	case Volcano:
		do += ", and custom.scheduler_enable=false in Volcano's chart"
	case LeaseOnly:
		who = fmt.Sprintf("%q, which renews the lease %s,", r.Holder, r.Object)
		do = "stop that process or, if it takes other pods, set volcano.checkScheduler=false"
	}
	return fmt.Sprintf("%s takes the pods of scheduler %s, too, and two schedulers give the same devices away twice: %s", who, r.SchedulerName, do)
}
