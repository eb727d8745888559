// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"strings"
	"testing"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

func TestOneUserAtATimeIsServedByADevice(t *testing.T) {
	kind := func(k sharing.ContainerKind, c modes.Claim) modes.Claim {
		c.Kind = k
		return c
	}
	cases := map[string]struct {
		there []modes.Claim
		comes modes.Claim
		want  string // in the refusal; "" is served
	}{
		"the same user":                      {[]modes.Claim{as(asks("a", "main"), 1000)}, as(asks("b", "main"), 1000), ""},
		"two whose images decide":            {[]modes.Claim{ofImage(asks("a", "main"))}, ofImage(asks("b", "main")), "runs there as the user of its image and this one would as the user of its image: set securityContext.runAsUser in both pods"},
		"two of one pod whose images decide": {[]modes.Claim{ofImage(asks("a", "one"))}, ofImage(asks("a", "two")), "container one"},
		"a restart of one whose image does":  {[]modes.Claim{ofImage(asks("a", "one"))}, ofImage(asks("a", "one")), ""},
		"another user":                       {[]modes.Claim{as(asks("a", "main"), 1000)}, as(asks("b", "main"), 2000), "container main of pod default/pod-a runs there as user 1000 and this one would as user 2000: set securityContext.runAsUser: 1000"},
		"one whose image decides":            {[]modes.Claim{as(asks("a", "main"), 1000)}, ofImage(asks("b", "main")), "as the user of its image: set securityContext.runAsUser: 1000"},
		"one beside an image that decides":   {[]modes.Claim{ofImage(asks("a", "main"))}, as(asks("b", "main"), 0), "runAsUser in both pods"},
		"another user in the same pod":       {[]modes.Claim{as(asks("a", "one"), 1000)}, as(asks("a", "two"), 2000), "runAsUser: 1000"},
		"a restart of the container":         {[]modes.Claim{as(asks("a", "one"), 1000)}, as(asks("a", "one"), 1000), ""},
		"an init container of the same pod":  {[]modes.Claim{kind(sharing.Init, as(asks("a", "init"), 0))}, as(asks("a", "main"), 1000), ""},
		"an init container of another pod":   {[]modes.Claim{kind(sharing.Init, as(asks("a", "init"), 0))}, as(asks("b", "main"), 1000), "container init"},
		"an init container that has ended":   {[]modes.Claim{kind(sharing.Init, as(asks("a", "init"), 0)), as(asks("a", "main"), 1000)}, as(asks("b", "main"), 1000), ""},
		"a sidecar of another user":          {[]modes.Claim{kind(sharing.Sidecar, as(asks("a", "side"), 0))}, as(asks("a", "main"), 1000), "container side"},
		"another user on a device elsewhere": {[]modes.Claim{elsewhere(as(asks("a", "main"), 1000))}, as(asks("b", "main"), 2000), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			for _, c := range tc.there {
				inject(t, h, c)
			}
			before := h.State()
			_, err := h.fresh().Prepare(context.Background(), tc.comes)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("the answer is %v, want %q in it", err, tc.want)
			case tc.want != "" && h.State() != before:
				t.Errorf("the refusal left\n%s", h.State())
			}
		})
	}
}

func elsewhere(c modes.Claim) modes.Claim {
	c.Devices[0].Device.ID, c.Devices[0].Share.Device = "GPU-b", "GPU-b"
	return c
}

func TestWhenThePodOfAUserIsGoneAnotherUserIsServed(t *testing.T) {
	h := newHost(t)
	inject(t, h, as(asks("a", "main"), 1000))
	if err := h.fresh().Unprepare(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	inject(t, h, as(asks("b", "main"), 2000))
}

func TestAllUsersShareAServerWhereTheAdministratorAllowsIt(t *testing.T) {
	h := newHost(t)
	h.multiUser = true
	inject(t, h, as(asks("a", "main"), 1000))
	inject(t, h, as(asks("b", "main"), 2000))
	if !h.daemonOf("GPU-a").multiUser {
		t.Error("the daemon serves one user at a time")
	}
}

func TestTheKindsOfContainersAreWrittenAsTheDomainNamesThem(t *testing.T) {
	if initKind != sharing.Init.String() || appKind != sharing.App.String() {
		t.Errorf("%s and %s", initKind, appKind)
	}
}
