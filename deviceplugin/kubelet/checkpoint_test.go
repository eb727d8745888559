// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// foreign is the answer of a device plugin that sets variables.
func foreign() string {
	raw, err := proto.Marshal(&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"}})
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// response is an Allocate answer as the kubelet keeps it.
func response(names ...string) string {
	answer := &pluginapi.ContainerAllocateResponse{}
	for _, n := range names {
		answer.CdiDevices = append(answer.CdiDevices, &pluginapi.CDIDevice{Name: n})
	}
	raw, err := proto.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// entryText is one entry in the kubelet's spelling.
func entryText(uid, container, resource, numa, slots, allocated string) string {
	return fmt.Sprintf(`{"PodUID":%q,"ContainerName":%q,"ResourceName":%q,"DeviceIDs":{%q:[%s]},"AllocResp":%q}`,
		uid, container, resource, numa, slots, allocated)
}

func fileText(entries ...string) string {
	return `{"Data":{"PodDeviceEntries":[` + strings.Join(entries, ",") +
		`],"RegisteredDevices":{"b.example/x":["1"],"a.example/y":null}},"Checksum":2917382}`
}

func TestTheKubeletsCheckpointIsRead(t *testing.T) {
	text := fileText(
		entryText("uid-1", "main", "volcano.sh/vgpu-number", "-1", `"GPU-b-1","GPU-a-0"`, response("volcano.sh/vgpu=id1")),
		entryText("uid-1", "main", "volcano.sh/vgpu-memory", "0", `"m-1"`, ""))
	got, err := DecodeCheckpoint([]byte(text))
	want := Record{
		Held: []Held{
			{Owner: "uid-1", Container: "main", Resource: "volcano.sh/vgpu-number", Slots: []string{"GPU-a-0", "GPU-b-1"}, CDI: []string{"volcano.sh/vgpu=id1"}},
			{Owner: "uid-1", Container: "main", Resource: "volcano.sh/vgpu-memory", Slots: []string{"m-1"}},
		},
		Registered: []string{"a.example/y", "b.example/x"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if of := got.Of("volcano.sh/vgpu-memory"); len(of) != 1 || of[0].Slots[0] != "m-1" {
		t.Errorf("of one resource: %+v", of)
	}
}

func TestSlotsOfSeveralNUMANodesAreOneSortedList(t *testing.T) {
	text := `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":{"1":["z"],"0":["y","a"]},"AllocResp":null}]}}`
	got, err := DecodeCheckpoint([]byte(text))
	if err != nil || !reflect.DeepEqual(got.Held[0].Slots, []string{"a", "y", "z"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAnUnreadableCheckpointIsAnErrorAndNothingElse(t *testing.T) {
	good := entryText("u", "c", "r", "0", `"s"`, "")
	for name, text := range map[string]string{
		"empty":                      "",
		"cut off":                    fileText(good)[:40],
		"another shape":              `{"PodDeviceEntries":[]}`,
		"a list":                     `[]`,
		"an entry of no pod":         fileText(good, entryText("", "c", "r", "0", `"s"`, "")),
		"an answer that is no text":  strings.Replace(fileText(good), `"AllocResp":""`, `"AllocResp":7`, 1),
		"an answer that is no proto": strings.Replace(fileText(good), `"AllocResp":""`, `"AllocResp":"//8="`, 1),
		"slots that are no list":     strings.Replace(fileText(good), `["s"]`, `"s"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := DecodeCheckpoint([]byte(text)); err == nil || len(got.Held) != 0 {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func FuzzReadKubelet(f *testing.F) {
	f.Add([]byte(fileText(entryText("u", "c", "r", "0", `"s"`, response("volcano.sh/vgpu=a")))))
	f.Add([]byte(`{"Data":{}}`))
	f.Add([]byte(`{"Data":{"PodDeviceEntries":[null]}}`))
	f.Add([]byte(`{"Data":null,"Checksum":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		record, err := DecodeCheckpoint(text)
		if err != nil && len(record.Held)+len(record.Registered) != 0 {
			t.Fatal("a part was returned beside an error")
		}
		for _, h := range record.Held {
			if h.Owner == "" || h.Container == "" {
				t.Fatalf("an entry of nobody: %+v", h)
			}
		}
	})
}
