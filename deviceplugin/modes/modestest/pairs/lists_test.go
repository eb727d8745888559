// SPDX-License-Identifier: Apache-2.0

package pairs_test

import (
	"context"
	"path/filepath"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	nodefactory "deviceshare/deviceplugin/modes/factory"
	"deviceshare/deviceplugin/modes/modestest"
	pairsnode "deviceshare/deviceplugin/modes/modestest/pairs"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/sharingtest/pairs"
	"deviceshare/sharing/wire"
)

// schedulers and nodes are the two lists, each with one backend more.
func schedulers() sharing.Backends { return append(factory.New(), pairs.New()) }

func nodes(dir string) []modes.Preparer {
	list := nodefactory.New(nodefactory.Config{Files: host.OS{}, Space: &modestest.Rooms{}, StateDir: dir, LibraryDir: dir})
	return append(list, pairsnode.New(host.OS{}, filepath.Join(dir, "pairs")))
}

// A fifth mode needs its folder and one entry in each of the two lists: a pod that
// names it goes all the way from the node's annotation to the injection.
func TestAFifthModeGoesFromTheInventoryToTheContainer(t *testing.T) {
	ledger := sharing.NewLedger(published(t), schedulers())
	for _, name := range []string{"first", "second"} {
		placement := carried(t, placed(t, ledger, name))
		share := placement.Containers[0].Shares[0]
		if share.Mode != pairs.Mode || share.Device != "GPU-1" || share.Memory != sharing.MiBs(1000) {
			t.Fatalf("%s got %+v", name, share)
		}
		in := prepared(t, &placement, ledger.Inventory())
		if len(in.Devices) != 1 || in.Devices[0] != share.Device || len(in.Mounts) != 1 {
			t.Errorf("%s is injected %+v", name, in)
		}
	}
	_, refusals := place.Place(ledger.Views(), pod(t, "third"), schedulers(), binpack(t))
	if !refusals.Refused() || refusals.Count[sharing.TooManyShares] != 1 || refusals.Count[sharing.WrongMode] != 1 {
		t.Errorf("the third: %s", refusals.String())
	}
}

// Without its entry in the list the mode is refused, and not served as another one.
func TestAModeThatIsNotInTheListIsRefused(t *testing.T) {
	views := sharing.NewLedger(published(t), factory.New()).Views()
	_, refusals := place.Place(views, pod(t, "p"), factory.New(), binpack(t))
	if !refusals.Refused() || refusals.Count[sharing.NoBackend] != 1 {
		t.Error(refusals.String())
	}
}

// Modes that score the same are chosen in the order of the list.
func TestTheFirstBackendOfTheListIsPreferred(t *testing.T) {
	for says, c := range map[string]struct {
		list sharing.Backends
		want sharing.Mode
	}{
		"behind the others":      {schedulers(), sharing.HAMiCore},
		"in front of the others": {append(sharing.Backends{pairs.New()}, factory.New()...), pairs.Mode},
	} {
		p := pod(t, "p")
		p.Modes = nil
		placement, refusals := place.Place(sharing.NewLedger(published(t), c.list).Views(), p, c.list, binpack(t))
		if refusals.Refused() || placement.Containers[0].Shares[0].Mode != c.want {
			t.Errorf("%s: %+v, %s", says, placement, refusals.String())
		}
	}
}

// Ten modes more: nothing counts on how many there are.
func TestAnyNumberOfBackendsCompetes(t *testing.T) {
	var list sharing.Backends
	var devices []sharing.Device
	for i := range 10 {
		b := numbered{Backend: pairs.New(), mode: sharing.Mode("example.com/" + string(rune('a'+i)))}
		list = append(list, b)
		devices = append(devices, sharingtest.Device(i, "T4", b.mode))
	}
	ledger := sharing.NewLedger(sharingtest.Node("n1", devices...), list)
	req := sharingtest.Ask("main", 1000, 0)
	if _, refusals := place.Place(ledger.Views(), sharingtest.Pod("one", req), list, binpack(t)); refusals.Refused() {
		t.Error(refusals.String())
	}
	req.Count = 2 // of one mode: none has two devices
	_, refusals := place.Place(ledger.Views(), sharingtest.Pod("two", req), list, binpack(t))
	if refusals.Found != 1 || refusals.Count[sharing.InAnotherMode] != 9 {
		t.Error(refusals.String())
	}
}

// numbered serves another mode by the same rules.
type numbered struct {
	sharing.Backend
	mode sharing.Mode
}

func (n numbered) Mode() sharing.Mode { return n.mode }

// published is a node with a device in mode hami-core and one in the new mode, read
// from the annotation that it publishes.
func published(t *testing.T) *sharing.Inventory {
	t.Helper()
	inv := sharingtest.Node("n1", sharingtest.Device(0, "T4", sharing.HAMiCore), sharingtest.Device(1, "T4", pairs.Mode))
	text, err := wire.EncodeInventory(*inv)
	if err != nil {
		t.Fatal(err)
	}
	read, err := wire.DecodeInventory(text)
	if err != nil {
		t.Fatal(err)
	}
	return &read
}

// pod names the new mode as users write it.
func pod(t *testing.T, name string) *sharing.PodRequest {
	t.Helper()
	mode, err := sharing.ParseMode("example.com/pairs")
	if err != nil {
		t.Fatal(err)
	}
	p := sharingtest.Pod(name, sharingtest.Ask("main", 1000, 0))
	p.Modes = []sharing.Mode{mode}
	return p
}

func binpack(t *testing.T) policy.Policy {
	t.Helper()
	p, ok := policy.Named("binpack")
	if !ok {
		t.Fatal("no policy binpack")
	}
	return p
}

// placed places a pod and reserves what it gets.
func placed(t *testing.T, l *sharing.Ledger, name string) sharing.Placement {
	t.Helper()
	placement, refusals := place.Place(l.Views(), pod(t, name), schedulers(), binpack(t))
	if refusals.Refused() {
		t.Fatal(refusals.String())
	}
	placement.Node = "n1"
	if err := l.Reserve(sharing.Owner(name), placement); err != nil {
		t.Fatal(err)
	}
	return placement
}

// carried is the placement after its way over the pod's annotation.
func carried(t *testing.T, p sharing.Placement) sharing.Placement {
	t.Helper()
	text, err := wire.EncodePlacement(p)
	if err != nil {
		t.Fatal(err)
	}
	read, err := wire.DecodePlacement(text)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// prepared prepares the only container of a placement.
func prepared(t *testing.T, p *sharing.Placement, inv *sharing.Inventory) modes.Injection {
	t.Helper()
	share := p.Containers[0].Shares[0]
	device, ok := inv.Device(share.Device)
	if !ok {
		t.Fatalf("no device %s", share.Device)
	}
	c := modes.Claim{
		ID: "id", Owner: "uid", Namespace: "default", Pod: "p", Container: p.Containers[0].Container,
		Devices: []modes.ClaimedDevice{{Device: *device, Share: share}},
	}
	for _, preparer := range nodes(t.TempDir()) {
		if preparer.Mode() != share.Mode {
			continue
		}
		in, err := preparer.Prepare(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	t.Fatalf("no node half for mode %s", share.Mode)
	return modes.Injection{}
}
