// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/sharing"
)

// Held is what the kubelet recorded about one container and one resource.
type Held struct {
	Owner     sharing.Owner
	Container string
	Resource  string
	Slots     []string // sorted
	CDI       []string // the CDI names the device plugin answered with
	// Other reports that it answered with more than CDI names, such as variables.
	Other bool
}

// Record is everything the kubelet recorded.
type Record struct {
	Held []Held
	// Registered are the resources that some device plugin registered, sorted.
	Registered []string
}

// Of is what is held of one resource.
func (r Record) Of(resource string) []Held {
	var held []Held
	for _, h := range r.Held {
		if h.Resource == resource {
			held = append(held, h)
		}
	}
	return held
}

// kubeletFile mirrors pkg/kubelet/cm/devicemanager/checkpoint of Kubernetes 1.20
// to 1.34. The checksum is the kubelet's own business: it depends on the memory
// layout of its types.
type kubeletFile struct {
	Data *struct {
		PodDeviceEntries []struct {
			PodUID        string
			ContainerName string
			ResourceName  string
			DeviceIDs     map[int64][]string
			AllocResp     []byte
		}
		RegisteredDevices map[string][]string
	}
}

// DecodeCheckpoint reads the text of kubelet_internal_checkpoint. It is total: entries
// or an error, never a part of them.
func DecodeCheckpoint(text []byte) (Record, error) {
	var file kubeletFile
	if err := json.Unmarshal(text, &file); err != nil {
		return Record{}, fmt.Errorf("read the kubelet's device checkpoint: %w", err)
	}
	if file.Data == nil {
		return Record{}, fmt.Errorf("read the kubelet's device checkpoint: no field Data")
	}
	record := Record{
		Held:       make([]Held, 0, len(file.Data.PodDeviceEntries)),
		Registered: slices.Sorted(maps.Keys(file.Data.RegisteredDevices)),
	}
	for i, e := range file.Data.PodDeviceEntries {
		if e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" {
			return Record{}, fmt.Errorf("read the kubelet's device checkpoint: entry %d names no pod, container or resource", i)
		}
		h := Held{Owner: sharing.Owner(e.PodUID), Container: e.ContainerName, Resource: e.ResourceName}
		for _, ids := range e.DeviceIDs {
			h.Slots = append(h.Slots, ids...)
		}
		slices.Sort(h.Slots)
		var response pluginapi.ContainerAllocateResponse
		if err := proto.Unmarshal(e.AllocResp, &response); err != nil {
			return Record{}, fmt.Errorf("read the kubelet's device checkpoint: entry %d of pod %s: %w", i, e.PodUID, err)
		}
		for _, d := range response.GetCdiDevices() {
			h.CDI = append(h.CDI, d.GetName())
		}
		h.Other = len(response.GetEnvs())+len(response.GetMounts())+len(response.GetDevices())+len(response.GetAnnotations()) > 0
		record.Held = append(record.Held, h)
	}
	return record, nil
}
