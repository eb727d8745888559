// SPDX-License-Identifier: Apache-2.0

package room

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"volcano.sh/volcano/pkg/scheduler/api"
)

func jobsNamed(n int) (jobs []*api.JobInfo) {
	for i := range n {
		jobs = append(jobs, &api.JobInfo{UID: api.JobID(fmt.Sprint("job", i))})
	}
	return jobs
}

// look plans for the jobs of a session; which are helped says the caller. It returns at how many it
// looked.
func look(h *hopeless, action string, jobs []*api.JobInfo, isHelped func(api.JobID) bool) (looked int) {
	a := h.beginSession(action, jobs)
	for _, job := range jobs {
		if a.mayPlanFor(job.UID) {
			looked++
			a.noteOutcome(job.UID, isHelped(job.UID), true)
		}
	}
	return looked
}

func nobody(api.JobID) bool { return false }

func TestASessionLooksAgainAtAFewHopelessJobs(t *testing.T) {
	h, jobs := newHopeless(), jobsNamed(100)
	if n := look(h, "preempt", jobs, nobody); n != 100 {
		t.Errorf("%d jobs are looked at first, want all", n)
	}
	seen := map[api.JobID]int{}
	for session := range 12 {
		n := look(h, "preempt", jobs, func(job api.JobID) bool { seen[job]++; return false })
		if n != maxFirst+maxOldest {
			t.Errorf("session %d looks at %d jobs", session, n)
		}
	}
	for i, job := range jobs {
		if want := 12; i < maxFirst && seen[job.UID] != want || seen[job.UID] == 0 {
			t.Errorf("the %d-th job was looked at %d times in 12 sessions", i, seen[job.UID])
		}
	}
	if n := look(h, "reclaim", jobs, nobody); n != 100 {
		t.Errorf("another action looks at %d jobs, want all", n)
	}
	if n := look(h, "preempt", append(jobsNamed(100), &api.JobInfo{UID: "new"}), nobody); n != maxFirst+maxOldest+1 {
		t.Errorf("with a new one, %d jobs are looked at", n)
	}
}

func TestWhereOneHopelessJobIsHelpedAllAreLookedAtAgain(t *testing.T) {
	h, jobs := newHopeless(), jobsNamed(100)
	look(h, "preempt", jobs, nobody)
	if n := look(h, "preempt", jobs, func(job api.JobID) bool { return job == "job0" }); n != 100 {
		t.Errorf("%d jobs are looked at, want all", n)
	}
}

func TestAJobForWhichThereWasNoTimeIsNotHopeless(t *testing.T) {
	h, jobs := newHopeless(), jobsNamed(40)
	a := h.beginSession("preempt", jobs)
	for _, job := range jobs {
		a.noteOutcome(job.UID, false, false)
	}
	if n := look(h, "preempt", jobs, nobody); n != 40 {
		t.Errorf("%d jobs are looked at, want all", n)
	}
}

// Whatever comes and goes, every job is looked at within so many sessions as there are jobs, and
// nothing is kept of those that are gone.
func TestEveryHopelessJobHasItsTurn(t *testing.T) {
	for seed := range uint64(50) {
		r, h := rand.New(rand.NewPCG(seed, 1)), newHopeless()
		jobs, waited := jobsNamed(1+r.IntN(60)), map[api.JobID]int{}
		for range 100 {
			if r.IntN(3) == 0 {
				jobs = append(jobs, &api.JobInfo{UID: api.JobID(fmt.Sprint("more", r.Int()))})
			}
			if i := r.IntN(len(jobs)); len(jobs) > 1 && r.IntN(3) == 0 {
				delete(waited, jobs[i].UID)
				jobs = append(jobs[:i:i], jobs[i+1:]...)
			}
			for _, job := range jobs {
				waited[job.UID]++
			}
			look(h, "preempt", jobs, func(job api.JobID) bool { waited[job] = 0; return false })
			for job, n := range waited {
				if n > 2+len(jobs)/maxOldest {
					t.Fatalf("seed %d: %s is not looked at in %d sessions, of %d jobs", seed, job, n, len(jobs))
				}
			}
			if len(h.last) != len(jobs) {
				t.Fatalf("seed %d: %d jobs are known, %d starve", seed, len(h.last), len(jobs))
			}
		}
	}
}
