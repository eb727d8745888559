// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"deviceshare/sharing/wire"
)

// Somebody may write an annotation by hand, or format it.
func TestTextsWithSpacesAndLineBreaksAreReadAlike(t *testing.T) {
	node, _ := wire.EncodeInventory(node1())
	pod, _ := wire.EncodePlacement(pod1())
	for says, format := range map[string]func(b *bytes.Buffer, text string) error{
		"indented": func(b *bytes.Buffer, text string) error { return json.Indent(b, []byte(text), " \t", "\t ") },
		"with a break at every mark": func(b *bytes.Buffer, text string) error {
			for _, mark := range []string{"{", "}", "[", "]"} {
				text = strings.ReplaceAll(text, mark, " \r\n\t"+mark+"\t\n\r ")
			}
			b.WriteString(text)
			return nil
		},
	} {
		var spaced, spacedPod bytes.Buffer
		if err := format(&spaced, node); err != nil {
			t.Fatal(err)
		}
		if err := format(&spacedPod, pod); err != nil {
			t.Fatal(err)
		}
		if got, err := wire.DecodeInventory(spaced.String()); err != nil || !reflect.DeepEqual(got, node1()) {
			t.Errorf("the inventory %s: %+v, %v", says, got, err)
		}
		if got, err := wire.DecodePlacement(spacedPod.String()); err != nil || !reflect.DeepEqual(got, pod1()) {
			t.Errorf("the placement %s: %+v, %v", says, got, err)
		}
	}
}

func TestAMistakeIsPlacedByItsWholePath(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                    "byte 0",
		`{"version":1,"node":null}`:             `"node" (byte 20)`,
		`{"version":1,"devices":[{},null]}`:     `"devices[1]" (byte 27)`,
		`{"version":1,"x":[[],[1,{"y":null}]]}`: `"x[1][1].y" (byte 29)`,
		`{"version":1,"x":1, "x":1}`:            `"x" (byte 23)`,
	} {
		_, err := wire.DecodeInventory(text)
		if err == nil || !strings.Contains(err.Error(), ": "+want+": ") {
			t.Errorf("%s: %v, want it at %s", text, err, want)
		}
	}
}

func TestTextsNestAsDeepAsTheyMay(t *testing.T) {
	nested := func(lists int) error {
		_, err := wire.DecodeInventory(`{"version":1,"node":"n","devices":[],"x":` + strings.Repeat("[", lists) + strings.Repeat("]", lists) + "}")
		return err
	}
	if err := nested(32); err != nil {
		t.Errorf("32 lists deep: %v", err)
	}
	if err := nested(33); err == nil || !strings.Contains(err.Error(), "nests too deep") {
		t.Errorf("33 lists deep: %v", err)
	}
}
