// SPDX-License-Identifier: Apache-2.0

package mps_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/mps"
	"deviceshare/sharing/sharingtest"
)

// oneUser is a device in mode mps whose server serves one user at a time.
func oneUser() sharing.Device {
	d := sharingtest.Device(0, "A100-80", sharing.MPS)
	d.OneUser, d.MaxShares = true, 100
	return d
}

// as is what a container holds that runs as a user; below 0 nobody knows as which.
func as(owner string, kind sharing.ContainerKind, id int64) sharing.Held {
	return sharing.Held{Owner: sharing.Owner(owner), Container: owner + fmt.Sprint(kind), Kind: kind, Share: sharing.Share{
		Device: oneUser().ID, Mode: sharing.MPS, Memory: sharing.MiB, User: userOf(id),
	}}
}

func userOf(id int64) sharing.User {
	if id < 0 {
		return sharing.User{}
	}
	return sharing.KnownUser(id)
}

func TestADeviceServesOneUserAtATimeUnlessItServesAll(t *testing.T) {
	cases := map[string]struct {
		held []sharing.Held
		user int64
		any  bool
		want sharing.Reason
	}{
		"an empty device":                              {nil, 1000, false, sharing.Fits},
		"an empty device, of a user nobody knows":      {nil, -1, false, sharing.Fits},
		"the same user":                                {[]sharing.Held{as("a", sharing.App, 1000)}, 1000, false, sharing.Fits},
		"root beside root":                             {[]sharing.Held{as("a", sharing.App, 0)}, 0, false, sharing.Fits},
		"another user":                                 {[]sharing.Held{as("a", sharing.App, 1000)}, 2000, false, sharing.OtherUser},
		"root beside a user nobody knows":              {[]sharing.Held{as("a", sharing.App, -1)}, 0, false, sharing.OtherUser},
		"a user nobody knows beside root":              {[]sharing.Held{as("a", sharing.App, 0)}, -1, false, sharing.OtherUser},
		"two users nobody knows":                       {[]sharing.Held{as("a", sharing.App, -1)}, -1, false, sharing.OtherUser},
		"one of two users that are there":              {[]sharing.Held{as("a", sharing.App, 1), as("b", sharing.App, 2)}, 1, false, sharing.OtherUser},
		"a sidecar of another user":                    {[]sharing.Held{as("a", sharing.Sidecar, 0)}, 1000, false, sharing.OtherUser},
		"an init container of another user, which end": {[]sharing.Held{as("a", sharing.Init, 0), as("a", sharing.App, 1000)}, 1000, false, sharing.Fits},
		"two users nobody knows, where any is served":  {[]sharing.Held{as("a", sharing.App, -1)}, -1, true, sharing.Fits},
		"other users, where any is served":             {[]sharing.Held{as("a", sharing.App, 1)}, 2, true, sharing.Fits},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := oneUser()
			d.OneUser = !c.any
			v := sharing.NewView(&d, c.held, factory.New())
			req := sharingtest.Ask("main", 100, 0)
			req.User = userOf(c.user)
			if _, reason := mps.New().Fit(&v, &req); reason != c.want {
				t.Errorf("the answer is %v, want %v", reason, c.want)
			}
		})
	}
	if !sharing.OtherUser.Curable() {
		t.Error("evicting the other user would help")
	}
}

func TestAShareSaysAsWhomItsContainerRunsWhereThatMatters(t *testing.T) {
	req := sharingtest.Ask("main", 100, 0)
	req.User = sharing.KnownUser(1000)
	for _, one := range []bool{true, false} {
		d := oneUser()
		d.OneUser = one
		v := sharing.NewView(&d, nil, factory.New())
		share := mps.New().Share(&v, &req)
		if share.User.Known != one || one && share.User.ID != 1000 {
			t.Errorf("one user %v: the share says %+v", one, share.User)
		}
	}
}

// Pods with containers of all kinds come and go. The oracle knows who runs at the same time as a
// list of user ids, and nothing else.
func TestNoTwoUsersEverRunOnADeviceAtTheSameTime(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	d, backends := oneUser(), factory.New()
	var held []sharing.Held
	running := map[string][]int64{} // of app containers and sidecars, by pod
	served := 0
	for turn := range 4000 {
		pod := fmt.Sprint(random.IntN(6))
		if _, there := running[pod]; there {
			delete(running, pod)
			var kept []sharing.Held
			for _, h := range held {
				if string(h.Owner) != pod {
					kept = append(kept, h)
				}
			}
			held = kept
			continue
		}
		v := sharing.NewView(&d, held, backends)
		var mine []sharing.Held
		var ids []int64
		fits := true
		for n := range random.IntN(3) + 1 {
			kind, id := []sharing.ContainerKind{sharing.App, sharing.Init, sharing.Sidecar}[random.IntN(3)], int64(random.IntN(3)-1)
			var others []int64
			for _, users := range running {
				others = append(others, users...)
			}
			want := true
			for _, other := range append(others, ids...) {
				want = want && other >= 0 && other == id
			}
			req := sharingtest.Ask(fmt.Sprint("c", n), 1, 0)
			req.Kind, req.User = kind, userOf(id)
			_, reason := mps.New().Fit(&v, &req)
			if (reason == sharing.Fits) != want {
				t.Fatalf("turn %d: user %d as %v beside %v and %v is answered with %v", turn, id, kind, others, ids, reason)
			}
			if reason != sharing.Fits {
				fits = false
				break
			}
			share := mps.New().Share(&v, &req)
			mine = append(mine, sharing.Held{Owner: sharing.Owner(pod), Container: req.Container, Kind: kind, Share: share})
			v = v.After(kind, &share)
			if kind != sharing.Init {
				ids = append(ids, id)
			}
		}
		if fits {
			held, running[pod] = append(held, mine...), ids
			served++
		}
	}
	if served < 100 {
		t.Errorf("%d pods were served", served)
	}
}
