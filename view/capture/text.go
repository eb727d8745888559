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
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

// Version is the version of the text with Scheduling, and withoutScheduling that of one without it,
// which programs before version 2 read too.
const Version, withoutScheduling = 2, 1

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

	kindNodeScheduling  = "NodeScheduling"
	kindPodScheduling   = "PodScheduling"
	kindQueueScheduling = "QueueScheduling"
	kindClass           = "PriorityClass"
	kindScheduler       = "SchedulerConfig"
)

// Write writes the text, object by object: it needs no memory but for one of them.
func Write(w io.Writer, s *State) error {
	version := Version
	if s.Scheduling == nil {
		version = withoutScheduling
	}
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
	if err == nil && s.Scheduling != nil {
		err = s.Scheduling.write(write)
	}
	if err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the capture: %w", err)
	}
	return nil
}

// write writes the lines that views skip.
func (s *Scheduling) write(write func(string, any) error) error {
	if s.Config != nil {
		if err := write(kindScheduler, *s.Config); err != nil {
			return err
		}
	}
	return errors.Join(each(s.Classes, kindClass, write), each(s.Queues, kindQueueScheduling, write),
		each(s.Nodes, kindNodeScheduling, write), each(s.Pods, kindPodScheduling, write))
}

func each[T any](list []T, kind string, write func(string, any) error) error {
	for _, o := range list {
		if err := write(kind, o); err != nil {
			return err
		}
	}
	return nil
}

// Read reads what Write writes, line by line, but for Scheduling, whose lines it skips. It is an
// error if the text is of another version or ends in the middle of the first line. Any other line
// that cannot be read is set aside in Unread.
func Read(r io.Reader) (*State, error) { return read(r, false) }

// ReadAll is Read with Scheduling. It is nil if the text is of version 1, which did not have it.
func ReadAll(r io.Reader) (*State, error) { return read(r, true) }

func read(r io.Reader, all bool) (*State, error) {
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
	if !all {
		s.Scheduling = nil
	}
	unread := 0
	for n := 2; in.Scan(); n++ {
		text := bytes.TrimSpace(in.Bytes())
		if len(text) == 0 || !all && isScheduling(text) {
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
	case *h.Version < withoutScheduling || *h.Version > Version:
		return nil, fmt.Errorf("read the capture: it is of version %d, this program reads versions %d to %d", *h.Version, withoutScheduling, Version)
	}
	s := &State{Hashed: h.Hashed, Forbidden: h.Forbidden}
	if *h.Version > withoutScheduling {
		s.Scheduling = &Scheduling{}
	}
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
	case kindNodeScheduling, kindPodScheduling, kindQueueScheduling, kindClass, kindScheduler:
		return s.readScheduling(l)
	}
	return fmt.Errorf("unknown kind %q", l.Kind)
}

// isScheduling tells by its beginning, as Write writes it, that a line is one of Scheduling: most
// of a file is, and views need not parse it.
func isScheduling(text []byte) bool {
	for _, kind := range []string{kindPodScheduling, kindNodeScheduling, kindQueueScheduling, kindClass, kindScheduler} {
		if bytes.HasPrefix(text, []byte(`{"kind":"`+kind+`"`)) {
			return true
		}
	}
	return false
}

// readScheduling reads one object that views do not need.
func (s *State) readScheduling(l rawLine) error {
	if s.Scheduling == nil { // a view reads it, or the text is of version 1
		return nil
	}
	var object any
	switch l.Kind {
	case kindScheduler:
		var config string
		if err := json.Unmarshal(l.Object, &config); err != nil {
			return fmt.Errorf("read the scheduler's configuration: %w", err)
		}
		s.Scheduling.Config = &config
		return nil
	case kindNodeScheduling:
		object = &corev1.Node{}
	case kindPodScheduling:
		object = &corev1.Pod{}
	case kindQueueScheduling:
		object = &schedulingv1beta1.Queue{}
	case kindClass:
		object = &schedulingv1.PriorityClass{}
	}
	if err := readObject(l, object); err != nil {
		return err
	}
	s.Scheduling.add(object)
	return nil
}

func take(s *State, l rawLine, into any) error {
	if err := readObject(l, into); err != nil {
		return err
	}
	s.add(into)
	return nil
}

func readObject(l rawLine, into any) error {
	if len(l.Object) == 0 || string(l.Object) == "null" {
		return fmt.Errorf("a %s without an object", l.Kind)
	}
	if err := json.Unmarshal(l.Object, into); err != nil {
		return fmt.Errorf("read a %s: %w", l.Kind, err)
	}
	return nil
}
