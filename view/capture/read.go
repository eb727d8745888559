// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

// longestLine bounds one line, which is one object: the API server takes none as large.
const longestLine = 8 << 20

// mostUnread bounds how many lines that cannot be read are told one by one.
const mostUnread = 20

// Read reads what Write writes, line by line, but for Scheduling, whose lines it skips. It is an
// error if the text is of another version or ends in the middle of the first line. Any other line
// that cannot be read is set aside in Unread.
func Read(r io.Reader) (*State, error) { return readCapture(r, false) }

// ReadAll is Read with Scheduling. It is nil if the text is of version 1, which did not have it.
func ReadAll(r io.Reader) (*State, error) { return readCapture(r, true) }

func readCapture(r io.Reader, all bool) (*State, error) {
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
	mistakes := 0
	eachPart(in, s.Scheduling != nil, func(p *part) {
		s.appendObjects(&p.state)
		s.Unread = append(s.Unread, p.unread[:min(len(p.unread), mostUnread-len(s.Unread))]...)
		mistakes += p.mistakes
	})
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read the capture: %w", err)
	}
	if mistakes > mostUnread {
		s.Unread = append(s.Unread, fmt.Sprintf("and %d lines more", mistakes-mostUnread))
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

type rawLine struct {
	Kind   string          `json:"kind"`
	Object json.RawMessage `json:"object"`
}

// readLine reads one object. Kinds of later programs are set aside like lines that are wrong.
func (s *State) readLine(text []byte) error {
	if l, ok := asWritten(text); ok && s.readObject(&l) == nil {
		return nil
	}
	var l rawLine
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("read an object: %w", err)
	}
	return s.readObject(&l)
}

// asWritten takes a line apart that begins as Write writes it, without parsing the object, which is
// nearly all of it. What it takes from a line that goes on in another way is no JSON.
func asWritten(text []byte) (rawLine, bool) {
	rest, begins := bytes.CutPrefix(text, []byte(`{"kind":"`))
	kind, rest, named := bytes.Cut(rest, []byte(`","object":`))
	object, ends := bytes.CutSuffix(rest, []byte(`}`))
	return rawLine{Kind: string(kind), Object: object}, begins && named && ends
}

func (s *State) readObject(l *rawLine) error {
	switch l.Kind {
	case kindConfig:
		var config string
		if err := json.Unmarshal(l.Object, &config); err != nil {
			return fmt.Errorf("read the device configuration: %w", err)
		}
		s.DeviceConfig = &config
		return nil
	case kindNode:
		return decodeAndAdd(s, l, &corev1.Node{})
	case kindPod:
		return s.takePod(l)
	case kindGroup:
		return decodeAndAdd(s, l, &schedulingv1beta1.PodGroup{})
	case kindQueue:
		return decodeAndAdd(s, l, &schedulingv1beta1.Queue{})
	case kindQuota:
		return decodeAndAdd(s, l, &corev1.ResourceQuota{})
	case kindNodeScheduling, kindPodScheduling, kindQueueScheduling, kindClass, kindScheduler, kindBudget, kindNamespace:
		return s.readScheduling(l)
	}
	return fmt.Errorf("unknown kind %q", l.Kind)
}

// isScheduling tells by its beginning, as Write writes it, that a line is one of Scheduling: most
// of a file is, and views need not parse it.
func isScheduling(text []byte) bool {
	for _, kind := range []string{
		kindPodScheduling, kindNodeScheduling, kindQueueScheduling, kindClass, kindScheduler, kindBudget, kindNamespace,
	} {
		if bytes.HasPrefix(text, []byte(`{"kind":"`+kind+`"`)) {
			return true
		}
	}
	return false
}

func (s *State) readScheduling(l *rawLine) error {
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
	case kindBudget:
		object = &policyv1.PodDisruptionBudget{}
	case kindNamespace:
		object = &corev1.Namespace{}
	}
	if err := l.decodeObject(object); err != nil {
		return err
	}
	s.Scheduling.addObject(object)
	return nil
}

func (s *State) takePod(l *rawLine) error {
	if !l.hasObject() {
		return fmt.Errorf("a %s without an object", l.Kind)
	}
	p, err := s.alike.readPod(l.Object)
	if err != nil {
		return fmt.Errorf("read a %s: %w", l.Kind, err)
	}
	s.addForViews(p)
	return nil
}

func decodeAndAdd(s *State, l *rawLine, into any) error {
	if err := l.decodeObject(into); err != nil {
		return err
	}
	s.addForViews(into)
	return nil
}

func (l *rawLine) decodeObject(into any) error {
	if !l.hasObject() {
		return fmt.Errorf("a %s without an object", l.Kind)
	}
	if err := json.Unmarshal(l.Object, into); err != nil {
		return fmt.Errorf("read a %s: %w", l.Kind, err)
	}
	return nil
}

func (l *rawLine) hasObject() bool { return len(l.Object) > 0 && string(l.Object) != "null" }
