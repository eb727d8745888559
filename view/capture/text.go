// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version is the version of the text with Scheduling, and withoutScheduling that of one without it,
// which programs before version 2 read too. It changes if earlier programs would misread lines that
// they know. A new kind of lines does not change it: they name these lines and use the rest.
const Version, withoutScheduling = 2, 1

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

const (
	kindConfig = "DeviceConfig"
	kindNode   = "Node"
	kindPod    = "Pod"
	kindGroup  = "PodGroup"
	kindQueue  = "Queue"
	kindQuota  = "ResourceQuota"

	kindNodeScheduling  = "NodeScheduling"
	kindPodScheduling   = "PodScheduling"
	kindQueueScheduling = "QueueScheduling"
	kindClass           = "PriorityClass"
	kindBudget          = "PodDisruptionBudget"
	kindNamespace       = "Namespace"
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
	err := errors.Join(writeEach(s.Queues, kindQueue, write), writeEach(s.Quotas, kindQuota, write), writeEach(s.Groups, kindGroup, write),
		writeEach(s.Nodes, kindNode, write), writeEach(s.Pods, kindPod, write))
	if err == nil && s.Scheduling != nil {
		err = s.Scheduling.writeLines(write)
	}
	if err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the capture: %w", err)
	}
	return nil
}

func (s *Scheduling) writeLines(write func(string, any) error) error {
	if s.Config != nil {
		if err := write(kindScheduler, *s.Config); err != nil {
			return err
		}
	}
	return errors.Join(writeEach(s.Classes, kindClass, write), writeEach(s.Namespaces, kindNamespace, write),
		writeEach(s.Budgets, kindBudget, write), writeEach(s.Queues, kindQueueScheduling, write),
		writeEach(s.Nodes, kindNodeScheduling, write), writeEach(s.Pods, kindPodScheduling, write))
}

func writeEach[T any](list []T, kind string, write func(string, any) error) error {
	for _, o := range list {
		if err := write(kind, o); err != nil {
			return err
		}
	}
	return nil
}
