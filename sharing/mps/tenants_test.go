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

// oneNamespace is a device in mode mps that serves pods of one namespace at a time.
func oneNamespace() sharing.Device {
	d := sharingtest.Device(0, "A100-80", sharing.MPS)
	d.OneNamespace, d.MaxShares = true, 100
	return d
}

// of is what a container of a pod holds whose namespace is known, or "".
func of(owner, namespace string, kind sharing.ContainerKind) sharing.Held {
	return sharing.Held{Owner: sharing.Owner(owner), Namespace: namespace, Container: owner + fmt.Sprint(kind), Kind: kind,
		Share: sharing.Share{Device: oneNamespace().ID, Mode: sharing.MPS, Memory: sharing.MiB}}
}

func TestADeviceServesOneNamespaceAtATimeUnlessItServesAll(t *testing.T) {
	blue := of("a", "blue", sharing.App)
	for name, c := range map[string]struct {
		held      []sharing.Held
		namespace string
		any       bool
		want      sharing.Reason
	}{
		"an empty device": {nil, "blue", false, sharing.Fits},
		"an empty device, of a namespace nobody knows": {nil, "", false, sharing.Fits},
		"the same namespace":                           {[]sharing.Held{blue}, "blue", false, sharing.Fits},
		"another namespace":                            {[]sharing.Held{blue}, "red", false, sharing.OtherNamespace},
		"another one, whose name begins alike":         {[]sharing.Held{blue}, "blue2", false, sharing.OtherNamespace},
		"a namespace nobody knows beside a known one":  {[]sharing.Held{blue}, "", false, sharing.OtherNamespace},
		"a known one beside one that nobody knows":     {[]sharing.Held{of("a", "", sharing.App)}, "blue", false, sharing.OtherNamespace},
		"two that nobody knows":                        {[]sharing.Held{of("a", "", sharing.App)}, "", false, sharing.OtherNamespace},
		"one of two that are there":                    {[]sharing.Held{blue, of("b", "red", sharing.App)}, "blue", false, sharing.OtherNamespace},
		"a sidecar of another namespace":               {[]sharing.Held{of("a", "red", sharing.Sidecar)}, "blue", false, sharing.OtherNamespace},
		"an init container of another namespace":       {[]sharing.Held{of("a", "red", sharing.Init)}, "blue", false, sharing.OtherNamespace},
		"another namespace, where any is served":       {[]sharing.Held{blue}, "red", true, sharing.Fits},
		"namespaces nobody knows, where any is served": {[]sharing.Held{of("a", "", sharing.App)}, "", true, sharing.Fits},
	} {
		t.Run(name, func(t *testing.T) {
			d := oneNamespace()
			d.OneNamespace = !c.any
			v := sharing.NewView(&d, c.held, factory.New())
			req := sharingtest.Ask("main", 100, 0)
			req.Namespace = c.namespace
			if _, reason := mps.New().Fit(&v, &req); reason != c.want {
				t.Errorf("the answer is %v, want %v", reason, c.want)
			}
		})
	}
	if !sharing.OtherNamespace.Curable() {
		t.Error("evicting the pods of the other namespace would help")
	}
}

func TestRootIsServedWhereTheDeviceSaysNothingAgainstIt(t *testing.T) {
	for name, c := range map[string]struct {
		user   int64 // below 0 nobody knows
		noRoot bool
		want   sharing.Reason
	}{
		"root":                              {0, true, sharing.RootUser},
		"a user that only the image knows":  {-1, true, sharing.RootUser},
		"another user":                      {1, true, sharing.Fits},
		"root, where it is served":          {0, false, sharing.Fits},
		"a user nobody knows, where it is ": {-1, false, sharing.Fits},
	} {
		d := oneNamespace()
		d.NoRoot = c.noRoot
		v := sharing.NewView(&d, nil, factory.New())
		req := sharingtest.Ask("main", 100, 0)
		req.User = userOf(c.user)
		if _, reason := mps.New().Fit(&v, &req); reason != c.want {
			t.Errorf("%s: the answer is %v, want %v", name, reason, c.want)
		}
	}
	if sharing.RootUser.Curable() {
		t.Error("nobody's leaving makes a container run as another user")
	}
}

// Pods come and go by the ledger. The oracle is the list of the namespaces of those that are there.
func TestNoTwoNamespacesEverMeetOnADevice(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 8))
	inv := sharing.Inventory{Node: "n", Devices: []sharing.Device{oneNamespace()}}
	ledger := sharing.NewLedger(&inv, factory.New())
	there := map[sharing.Owner]string{}
	served, refused := 0, 0
	for turn := range 4000 {
		owner := sharing.Owner(fmt.Sprint(random.IntN(6)))
		if _, is := there[owner]; is {
			ledger.Release(owner)
			delete(there, owner)
			continue
		}
		name, kind := []string{"", "blue", "red"}[random.IntN(3)], []sharing.ContainerKind{sharing.App, sharing.Init, sharing.Sidecar}[random.IntN(3)]
		want := true
		for _, other := range there {
			want = want && other != "" && other == name
		}
		v := ledger.Views()[0]
		req := sharingtest.Ask("main", 1, 0)
		req.Kind, req.Namespace = kind, name
		_, reason := mps.New().Fit(&v, &req)
		if (reason == sharing.Fits) != want {
			t.Fatalf("turn %d: namespace %q beside %v is answered with %v", turn, name, there, reason)
		}
		if !want {
			refused++
			continue
		}
		served++
		p := sharing.Placement{Node: "n", Namespace: name, Containers: []sharing.ContainerShares{{Container: "main", Kind: kind,
			Shares: []sharing.Share{mps.New().Share(&v, &req)}}}}
		if err := ledger.Reserve(owner, p); err != nil {
			t.Fatal(err)
		}
		there[owner] = name
		if err := ledger.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if served < 100 || refused < 100 {
		t.Errorf("%d pods were served and %d refused", served, refused)
	}
}
