// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"deviceshare/view"
	"deviceshare/view/forward"
)

// topPause is between two readings, over which compute is told.
const topPause = 2 * time.Second

func (o *options) topCommand() *cobra.Command {
	return &cobra.Command{
		Use: "top [NODE]", Short: "Show what containers use of devices now: used, allocated and limit", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			if o.from != "" {
				return errors.New("top asks the device plugins what is used now, which no capture holds: leave out --from")
			}
			node := ""
			if len(args) > 0 {
				node = args[0]
			}
			m, err := o.newMeter(node)
			if err != nil {
				return err
			}
			return o.showAnswer(c.Context(), func(cluster *view.Cluster) (answer, error) {
				devices := cluster.Devices(node)
				if node != "" && len(devices) == 0 {
					return answer{}, fmt.Errorf("node %s publishes no devices", node)
				}
				readings, err := m.readUsage(c.Context())
				if err != nil {
					return answer{}, err
				}
				list := view.Top(devices, readings)
				return answer{value: list, text: view.TopText(list, o.terminalPaint())}, nil
			})
		},
	}
}

// meter reads the device plugins and remembers what they said before.
type meter struct {
	reader *forward.Reader
	node   string
	last   map[string]forward.Sample
}

func (o *options) newMeter(node string) (*meter, error) {
	config, client, err := o.connectToCluster()
	if err != nil {
		return nil, err
	}
	return &meter{reader: forward.New(config, client, o.installNamespace), node: node}, nil
}

// readUsage asks the device plugins. The first time it asks twice: compute is told over a time.
func (m *meter) readUsage(ctx context.Context) (map[string]view.Reading, error) {
	wanted := func(node string) bool { return m.node == "" || node == m.node }
	if m.last == nil {
		first, err := m.reader.Read(ctx, wanted)
		if err != nil {
			return nil, err
		}
		m.last = first
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(topPause):
		}
	}
	now, err := m.reader.Read(ctx, wanted)
	if err != nil {
		return nil, err
	}
	out := make(map[string]view.Reading, len(now))
	for node, s := range now {
		if s.Err != nil {
			out[node] = view.Reading{Unread: s.Err.Error()}
			continue
		}
		before := m.last[node]
		out[node] = view.Reading{Before: before.Page, Now: s.Page, Seconds: s.At.Sub(before.At).Seconds()}
	}
	m.last = now
	return out, nil
}
