// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"strings"
	"testing"
)

const log = `{"stage":"RequestReceived","verb":"create","userAgent":"deviceshare-scheduler/v1","objectRef":{"resource":"pods","subresource":"binding","namespace":"n","name":"a"}}
{"stage":"ResponseComplete","verb":"create","userAgent":"deviceshare-scheduler/v1","objectRef":{"resource":"pods","subresource":"binding","namespace":"n","name":"a"},"responseStatus":{"code":201},"requestObject":{"metadata":{"annotations":{"volcano.sh/vgpu-ids-new":"x"}}}}
{"stage":"ResponseComplete","verb":"patch","userAgent":"deviceshare-scheduler/v1","objectRef":{"resource":"nodes","name":"n1"},"responseStatus":{"code":200},"requestObject":[{"op":"add"}]}
{"stage":"ResponseComplete","verb":"get","userAgent":"deviceshare-scheduler/v1","objectRef":{"resource":"pods","namespace":"n","name":"a"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"update","userAgent":"kubelet/v1","objectRef":{"resource":"pods","subresource":"status","namespace":"n","name":"a"},"responseStatus":{"code":409},"requestObject":{"metadata":{"annotations":{"volcano.sh/vgpu-ids-new":"x"}}}}
{"stage":"Respo`

func TestWritesAreReadAndFiltered(t *testing.T) {
	writes, err := Writes(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	if len(writes) != 3 {
		t.Fatalf("got %d writes, want the three finished changes: %v", len(writes), writes)
	}
	if w := writes[0]; w.Resource != "pods/binding" || w.Annotations["volcano.sh/vgpu-ids-new"] != "x" || w.Code != 201 {
		t.Errorf("binding read as %+v", w)
	}
	if got := By(writes, "deviceshare-scheduler"); len(got) != 2 {
		t.Errorf("scheduler made %v", got)
	}
	if got := Of(writes, "n", "a"); len(got) != 2 {
		t.Errorf("writes about the pod: %v", got)
	}
	if got := AboutDevices(writes); len(got) != 2 {
		t.Errorf("writes about devices: %v; the refused one does not count, a write to a node does", got)
	}
}

func TestABrokenLineIsReportedWithItsNumber(t *testing.T) {
	_, err := Writes(strings.NewReader("{}\nnonsense\n"))
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v, want an error that names line 2", err)
	}
}
