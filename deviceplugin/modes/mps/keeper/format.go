// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"

	"deviceshare/sharing"
)

// Version is the version of requests and answers. A keeper is not updated with the device
// plugin, so that both can meet one of another version: then neither goes on.
const Version = 1

// The largest request and the largest answer, in bytes.
const (
	maxRequest = 4 << 10
	maxAnswer  = 64 << 10
)

// Request is one line of JSON, written as Encode does and in no other way.
type Request struct {
	Version int `json:"version"`
	// Start is the daemon to start. Without one the request asks for the state only.
	Start *Daemon `json:"start,omitempty"`
}

// Daemon is a daemon with the options that it can be started with.
type Daemon struct {
	Device sharing.DeviceID `json:"device"`
	// Directory is where both sides must expect the daemon's directories.
	Directory   string `json:"directory"`
	MultiUser   bool   `json:"multiUser"`
	Partitioned bool   `json:"partitioned"`
}

// Answer is one line of JSON: a refusal, or the state after what was asked for.
type Answer struct {
	Version int    `json:"version"`
	Refused string `json:"refused,omitempty"`
	State   *State `json:"state,omitempty"`
}

// State is what a keeper knows.
type State struct {
	// Directories is the parent of all daemons' directories.
	Directories string `json:"directories"`
	// IsEnding: it starts no daemons any more and waits for the end of those it has.
	IsEnding bool `json:"isEnding"`
	// Running are the daemons that it started, Ended the last that have ended since.
	Running []Process `json:"running"`
	Ended   []End     `json:"ended"`
}

// Process is the process of a daemon.
type Process struct {
	Device sharing.DeviceID `json:"device"`
	PID    int              `json:"pid"`
}

// End is a daemon that has ended.
type End struct {
	Process
	How string `json:"how"` // for people
}

// deviceID matches what the driver calls its devices. Such an id is one element of a path, and
// one word of CUDA_VISIBLE_DEVICES.
var deviceID = regexp.MustCompile(`^GPU-[0-9A-Za-z-]{1,80}$`)

// VersionError is the answer to what is written in another version.
type VersionError struct{ Theirs int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("it is written in version %d of the format, and this program knows version %d", e.Theirs, Version)
}

// Encode returns the line.
func (r Request) Encode() []byte { return encodeLine(r) }

// Encode returns the line.
func (a Answer) Encode() []byte { return encodeLine(a) }

func encodeLine(value any) []byte {
	text, _ := json.Marshal(value) // numbers, texts and lists always marshal
	return append(text, '\n')
}

// ReadRequest reads a line. It takes what Encode writes, byte by byte, and nothing else.
func ReadRequest(text []byte) (Request, error) {
	var r Request
	if err := decodeLine(text, maxRequest, &r); err != nil {
		return Request{}, fmt.Errorf("read the request: %w", err)
	}
	if !bytes.Equal(r.Encode(), text) {
		return Request{}, errors.New("read the request: it is not written as a device plugin writes it")
	}
	if d := r.Start; d != nil {
		if !deviceID.MatchString(string(d.Device)) {
			return Request{}, fmt.Errorf("read the request: %q is no id of a device", d.Device)
		}
		if !filepath.IsAbs(d.Directory) || filepath.Clean(d.Directory) != d.Directory {
			return Request{}, fmt.Errorf("read the request: directory %q is not absolute or has dots in it", d.Directory)
		}
	}
	return r, nil
}

// ReadAnswer reads a line.
func ReadAnswer(text []byte) (Answer, error) {
	var a Answer
	if err := decodeLine(text, maxAnswer, &a); err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	if (a.Refused == "") == (a.State == nil) {
		return Answer{}, errors.New("read the answer: it is neither a refusal nor a state, or both")
	}
	return a, nil
}

// decodeLine reads one value that takes all of a line. Another version is a *VersionError, whatever
// else is in the line.
func decodeLine(text []byte, most int, into any) error {
	if len(text) > most {
		return fmt.Errorf("it has more than %d bytes", most)
	}
	var head struct{ Version int }
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	if head.Version != Version {
		return &VersionError{Theirs: head.Version}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}
