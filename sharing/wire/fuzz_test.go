// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"errors"
	"reflect"
	"testing"

	"deviceshare/sharing/wire"
)

// explained checks that an error says which text is wrong and why.
func explained(t *testing.T, err error) {
	t.Helper()
	var e *wire.Error
	if !errors.As(err, &e) || e.Text == "" || e.Why == "" {
		t.Fatalf("an error that does not explain: %#v", err)
	}
}

func FuzzInventory(f *testing.F) {
	text, _ := wire.EncodeInventory(node1())
	f.Add(text)
	f.Add(`{"version":1,"node":"n","devices":[]}`)
	f.Add(`{"version":1,"node":"n","devices":[{"uuid":"GPU-a","index":0,"memory":1,"cores":1,"maxShares":1,"healthy":true,"mode":"mig","mig":{"slices":1}}]}`)
	f.Add(`{"version":1,"node":"n","devices":[{"uuid":"GPU-a","index":0,"memory":1,"cores":1,"maxShares":1,"healthy":false,"reason":"XID 79","changing":true,"mode":"mps"}]}`)
	f.Add(`{"version":1,"node":"n","devices":[{"uuid":"GPU-a","index":0,"memory":1,"cores":1,"maxShares":1,"healthy":true,"mode":"mig","mig":{"slices":1,"policy":"best-fit"}}]}`)
	f.Add(`{"version":1,"node":"n","devices":[{"uuid":"GPU-a","index":0,"memory":1,"cores":1,"maxShares":1,"healthy":true,"virtual":true,"licence":"missing","mode":"mps"}]}`)
	f.Add(`{"version":1,"VERSION":1,"node":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		inv, err := wire.DecodeInventory(text)
		if err != nil {
			explained(t, err)
			return
		}
		again, err := wire.EncodeInventory(inv)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := wire.DecodeInventory(again)
		if err != nil || !reflect.DeepEqual(inv, back) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, back, inv)
		}
		if _, err := wire.DecodeRegister(wire.EncodeRegister(inv, 1), 1); err != nil {
			t.Fatalf("the legacy text of %+v: %v", inv, err)
		}
	})
}

func FuzzPlacement(f *testing.F) {
	text, _ := wire.EncodePlacement(pod1())
	f.Add(text)
	f.Add(`{"version":1,"node":"n","containers":[]}`)
	f.Add(`{"version":1,"node":"n","containers":[{"name":"a","kind":"app","shares":[{"uuid":"GPU-a","mode":"mig","memory":1,"cores":0,"partition":{"profile":"1g.5gb","start":0,"size":1}}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := wire.DecodePlacement(text)
		if err != nil {
			explained(t, err)
			return
		}
		again, err := wire.EncodePlacement(p)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := wire.DecodePlacement(again)
		if err != nil || !reflect.DeepEqual(p, back) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, back, p)
		}
	})
}

func FuzzRegister(f *testing.F) {
	f.Add(wire.EncodeRegister(node1(), 1), int64(1))
	f.Add("GPU-a,10,81920,NVIDIA-NVIDIA A100,true:", int64(10))
	f.Add("GPU-a,10,81920,NVIDIA-NVIDIA A100,true,hami-core,more:::", int64(0))
	f.Add("GPU-a,10,9223372036854775807,x,false,mig", int64(1)<<62)
	f.Fuzz(func(t *testing.T, text string, factor int64) {
		inv, err := wire.DecodeRegister(text, factor)
		if err != nil {
			explained(t, err)
			return
		}
		once := wire.EncodeRegister(inv, factor)
		back, err := wire.DecodeRegister(once, factor)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if twice := wire.EncodeRegister(back, factor); once != twice {
			t.Fatalf("got %s, then %s", once, twice)
		}
	})
}

func FuzzAssigned(f *testing.F) {
	f.Add(idA+",NVIDIA,1000,30:;;"+idB+"[group2-2],NVIDIA,19968,0:", int64(1))
	f.Add(";;"+idB+"[mixed-2],NVIDIA,0,0", int64(1000))
	f.Add("GPU-x[g-1-2],NVIDIA,-1,101:;GPU-x,MLU,1,1::", int64(-1))
	inv := node1()
	f.Fuzz(func(t *testing.T, text string, factor int64) {
		for _, known := range []bool{false, true} {
			use := &inv
			if !known {
				use = nil
			}
			p, err := wire.DecodeAssigned(text, refs(), use, factor)
			if err != nil {
				explained(t, err)
				continue
			}
			once := wire.EncodeAssigned(p, factor, refs()...)
			back, err := wire.DecodeAssigned(once, refs(), use, factor)
			if err != nil || !reflect.DeepEqual(p, back) {
				t.Fatalf("%s: %v\ngot  %+v\nwant %+v", once, err, back, p)
			}
		}
	})
}

// FuzzReadPlacement mixes good and bad texts on one pod.
func FuzzReadPlacement(f *testing.F) {
	a, _ := wire.PlacementAnnotations(pod1(), 1, 1)
	f.Add(a[wire.PodPlacement], a[wire.PodAssigned], "node1", "mig,hami-core")
	f.Add("", a[wire.PodAssigned], "node1", "time-slicing")
	f.Add("{}", ";", "", "")
	inv := node1()
	f.Fuzz(func(t *testing.T, placement, assigned, node, mode string) {
		a := map[string]string{wire.PodPlacement: placement, wire.PodAssigned: assigned, wire.PodNode: node, wire.UserMode: mode}
		if placement == "" {
			delete(a, wire.PodPlacement)
		}
		p, found, err := wire.ReadPlacement(a, refs(), &inv, 1)
		if err != nil {
			explained(t, err)
		}
		if found && (err != nil || p.Node != "node1") || !found && p.Node != "" {
			t.Fatalf("got %+v, %v, %v", p, found, err)
		}
	})
}
