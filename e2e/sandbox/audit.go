// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// AuditEvent is one completed request, as the apiserver logged it (audit.k8s.io/v1, the fields that
// tests look at): every write to pods, bindings and nodes, and of this project's components
// whatever they asked for.
type AuditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// RequestObject is the body of a write.
	RequestObject json.RawMessage `json:"requestObject"`
	Time          time.Time       `json:"requestReceivedTimestamp"`
}

// Pod is the pod that made the request with its service account's token, or "".
func (e *AuditEvent) Pod() string {
	if names := e.User.Extra["authentication.kubernetes.io/pod-name"]; len(names) == 1 {
		return names[0]
	}
	return ""
}

// AuditLog returns what the apiserver logged so far, oldest first; User tells whose request one is.
// It needs Options.Audit.
func (c *Cluster) AuditLog() ([]AuditEvent, error) {
	if !c.opts.Audit {
		return nil, errors.New("read audit log: the sandbox was started without Options.Audit")
	}
	f, err := os.Open(c.layout.auditLog())
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer f.Close()
	return readAudit(f)
}

// readAudit decodes one event per line. A last line without a newline is still being written and
// left out.
func readAudit(r io.Reader) ([]AuditEvent, error) {
	var out []AuditEvent
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		var e AuditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read audit log: line %d: %w", n, err)
		}
		out = append(out, e)
	}
}
