// SPDX-License-Identifier: Apache-2.0

// Package audit reads the API server's audit log: who wrote what. The suites use
// it to show what the scheduler writes and what it does not.
package audit

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Write is one request that changed something, or tried to.
type Write struct {
	Verb        string
	Resource    string // "pods", "pods/binding", "nodes/status"
	Namespace   string
	Name        string
	UserAgent   string
	Code        int
	Annotations map[string]string // annotations in the object that was sent
	Body        string            // the object that was sent, as JSON
}

// event is the part of audit.k8s.io/v1 Event that matters here.
type event struct {
	Stage     string `json:"stage"`
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	ObjectRef *struct {
		Resource, Subresource, Namespace, Name string
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject json.RawMessage `json:"requestObject"`
}

// Writes reads a log, one JSON event per line, and returns the finished requests
// that change objects, in the order of the log. A last line that is not whole is
// left out: the API server is still writing it.
func Writes(log io.Reader) ([]Write, error) {
	var writes []Write
	r := bufio.NewReader(log)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return writes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read audit log, line %d: %w", n, err)
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("decode audit log, line %d: %w", n, err)
		}
		if w, ok := e.write(); ok {
			writes = append(writes, w)
		}
	}
}

func (e *event) write() (Write, bool) {
	changes := []string{"create", "update", "patch", "delete", "deletecollection"}
	if e.Stage != "ResponseComplete" || e.ObjectRef == nil || !slices.Contains(changes, e.Verb) {
		return Write{}, false
	}
	w := Write{
		Verb: e.Verb, Resource: e.ObjectRef.Resource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		UserAgent: e.UserAgent, Code: e.ResponseStatus.Code, Body: string(e.RequestObject),
	}
	if e.ObjectRef.Subresource != "" {
		w.Resource += "/" + e.ObjectRef.Subresource
	}
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	// A JSON patch is a list and has no metadata; its text is in Body.
	if json.Unmarshal(e.RequestObject, &object) == nil {
		w.Annotations = object.Metadata.Annotations
	}
	return w, true
}

// By keeps the writes of one program, by the name its user agent begins with.
func By(writes []Write, program string) []Write {
	return keep(writes, func(w Write) bool { return strings.HasPrefix(w.UserAgent, program) })
}

// Of keeps the writes about one pod, whatever the subresource.
func Of(writes []Write, namespace, pod string) []Write {
	return keep(writes, func(w Write) bool {
		return w.Namespace == namespace && w.Name == pod && (w.Resource == "pods" || strings.HasPrefix(w.Resource, "pods/"))
	})
}

// AboutDevices keeps the successful writes that carry device annotations or
// touch a node.
func AboutDevices(writes []Write) []Write {
	return keep(writes, func(w Write) bool {
		if w.Code >= 300 {
			return false
		}
		return strings.Contains(w.Body, "volcano.sh/vgpu-") || strings.Contains(w.Body, "volcano.sh/devices-to-allocate") ||
			w.Resource == "nodes" || strings.HasPrefix(w.Resource, "nodes/")
	})
}

func keep(writes []Write, want func(Write) bool) []Write {
	var kept []Write
	for _, w := range writes {
		if want(w) {
			kept = append(kept, w)
		}
	}
	return kept
}

// String is one line for a test's message.
func (w Write) String() string {
	return fmt.Sprintf("%s %s %s/%s by %s: %d", w.Verb, w.Resource, w.Namespace, w.Name, w.UserAgent, w.Code)
}
