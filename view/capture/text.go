// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

// Version is the version of the text that Write writes and Read reads.
const Version = 1

// longestLine bounds one line, which is one object: the API server takes none as large.
const longestLine = 8 << 20

// mostUnread bounds how many lines that cannot be read are told one by one.
const mostUnread = 20

type header struct {
	Version *int       `json:"deviceshareCapture"`
	Taken   *time.Time `json:"taken,omitempty"`
	Hashed  bool       `json:"hashed,omitempty"`

	Forbidden []string `json:"forbidden,omitempty"`
}

type line struct {
	Kind   string `json:"kind"`
	Object any    `json:"object"`
}

type rawLine struct {
	Kind   string          `json:"kind"`
	Object json.RawMessage `json:"object"`
}

const (
	kindConfig = "DeviceConfig"
	kindNode   = "Node"
	kindPod    = "Pod"
	kindGroup  = "PodGroup"
	kindQueue  = "Queue"
)

// Write writes the text, object by object: it needs no memory but for one of them.
func Write(w io.Writer, s *State) error {
	version := Version
	h := header{Version: &version, Hashed: s.Hashed, Forbidden: s.Forbidden}
	if !s.Taken.IsZero() {
		taken := s.Taken.UTC()
		h.Taken = &taken
	}
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	if err := enc.Encode(h); err != nil {
		return fmt.Errorf("write the first line of the capture: %w", err)
	}
	write := func(kind string, object any) error {
		if err := enc.Encode(line{Kind: kind, Object: object}); err != nil {
			return fmt.Errorf("write a %s to the capture: %w", kind, err)
		}
		return nil
	}
	if s.DeviceConfig != nil {
		if err := write(kindConfig, *s.DeviceConfig); err != nil {
			return err
		}
	}
	err := errors.Join(each(s.Queues, kindQueue, write), each(s.Groups, kindGroup, write),
		each(s.Nodes, kindNode, write), each(s.Pods, kindPod, write))
	if err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the capture: %w", err)
	}
	return nil
}

func each[T any](list []T, kind string, write func(string, any) error) error {
	for _, o := range list {
		if err := write(kind, o); err != nil {
			return err
		}
	}
	return nil
}

// Read reads what Write writes, line by line. It is an error if the text is of another version or
// ends in the middle of the first line. Any other line that cannot be read is set aside in Unread.
func Read(r io.Reader) (*State, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), longestLine)
	if !in.Scan() {
		if err := in.Err(); err != nil {
			return nil, fmt.Errorf("read the first line of the capture: %w", err)
		}
		return nil, errors.New("read the capture: it is empty")
	}
	s, err := readHeader(in.Bytes())
	if err != nil {
		return nil, err
	}
	unread := 0
	for n := 2; in.Scan(); n++ {
		text := bytes.TrimSpace(in.Bytes())
		if len(text) == 0 {
			continue
		}
		if err := s.readLine(text); err != nil {
			if unread++; unread <= mostUnread {
				s.Unread = append(s.Unread, fmt.Sprintf("line %d: %v", n, err))
			}
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read the capture: %w", err)
	}
	if unread > mostUnread {
		s.Unread = append(s.Unread, fmt.Sprintf("and %d lines more", unread-mostUnread))
	}
	s.Sort()
	return s, nil
}

func readHeader(text []byte) (*State, error) {
	var h header
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("read the first line of the capture: %w", err)
	}
	switch {
	case h.Version == nil:
		return nil, errors.New(`read the capture: the first line does not say "deviceshareCapture": is this a capture?`)
	case *h.Version != Version:
		return nil, fmt.Errorf("read the capture: it is of version %d, this program reads version %d", *h.Version, Version)
	}
	s := &State{Hashed: h.Hashed, Forbidden: h.Forbidden}
	if h.Taken != nil {
		s.Taken = *h.Taken
	}
	return s, nil
}

// readLine reads one object. Kinds of later programs are set aside like lines that are wrong.
func (s *State) readLine(text []byte) error {
	var l rawLine
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("read an object: %w", err)
	}
	switch l.Kind {
	case kindConfig:
		var config string
		if err := json.Unmarshal(l.Object, &config); err != nil {
			return fmt.Errorf("read the device configuration: %w", err)
		}
		s.DeviceConfig = &config
		return nil
	case kindNode:
		return take(s, l, &corev1.Node{})
	case kindPod:
		return take(s, l, &corev1.Pod{})
	case kindGroup:
		return take(s, l, &schedulingv1beta1.PodGroup{})
	case kindQueue:
		return take(s, l, &schedulingv1beta1.Queue{})
	}
	return fmt.Errorf("unknown kind %q", l.Kind)
}

func take(s *State, l rawLine, into any) error {
	if len(l.Object) == 0 || string(l.Object) == "null" {
		return fmt.Errorf("a %s without an object", l.Kind)
	}
	if err := json.Unmarshal(l.Object, into); err != nil {
		return fmt.Errorf("read a %s: %w", l.Kind, err)
	}
	s.Add(into)
	return nil
}
