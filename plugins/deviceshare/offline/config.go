// SPDX-License-Identifier: Apache-2.0

package offline

import (
	_ "embed" // the shipped configuration
	"errors"
	"fmt"
	"slices"
	"strings"

	"volcano.sh/volcano/pkg/scheduler"
	_ "volcano.sh/volcano/pkg/scheduler/actions" // Volcano's actions, by their names
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	_ "volcano.sh/volcano/pkg/scheduler/plugins" // Volcano's plugins, by their names

	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/deviceshare/arguments"
	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/plugins/schedulerconf"
)

// policyArgument is the argument of the plugin that names the policy of pods that name none.
const policyArgument = "deviceshare.SchedulePolicy"

// shipped is the scheduler's configuration as the chart installs it.
//
//go:embed shipped.conf
var shipped string

// configuration is what the scheduler's configuration says.
type configuration struct {
	actions []framework.Action
	tiers   []conf.Tier
	// arguments are those of the actions.
	arguments []conf.Configuration
}

// readConfiguration reads the text strictly: where a scheduler logs a mistake and goes on, a
// simulation would answer about another cluster.
func readConfiguration(text, policy string, rested bool) (configuration, error) {
	read := schedulerconf.Read(text, schedulerconf.Known{Action: schedulerconf.Registered().Action, Plugin: hasPlugin})
	if len(read.Mistakes) > 0 {
		return configuration{}, fmt.Errorf("read the scheduler's configuration: %s", strings.Join(read.Mistakes, "\n"))
	}
	actions, tiers, options, _, err := scheduler.UnmarshalSchedulerConf(read.Text)
	if err != nil {
		return configuration{}, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	c := configuration{actions: actions, tiers: tiers, arguments: withoutWait(options, rested)}
	var mistakes []error
	for i := range c.tiers {
		for k := range c.tiers[i].Plugins {
			o := &c.tiers[i].Plugins[k]
			mistakes = append(mistakes, c.checkPlugin(o, fmt.Sprintf("tiers[%d].plugins[%d]", i, k))...)
			if o.Name != deviceshare.PluginName {
				continue
			}
			if policy != "" {
				o.Arguments = withArgument(o.Arguments, policyArgument, policy)
			}
			_, wrong := arguments.Read(o.Arguments)
			for _, m := range wrong {
				if m.Consequence == arguments.LeftOut {
					continue // the scheduler goes on without it
				}
				mistakes = append(mistakes, fmt.Errorf("tiers[%d].plugins[%d].arguments.%s", i, k, m))
			}
		}
	}
	if len(mistakes) > 0 {
		return configuration{}, fmt.Errorf("read the scheduler's configuration: %w", errors.Join(mistakes...))
	}
	return c, nil
}

// hasPlugin reports whether there is a plugin. Ours is built for each cluster.
func hasPlugin(name string) bool {
	return schedulerconf.Registered().Plugin(name) || name == deviceshare.PluginName
}

// withoutWait has pods move at once for others that have come, and those that have moved not rest
// if all count as rested. The clock of a simulation stands still: they would never have waited.
func withoutWait(options []conf.Configuration, rested bool) []conf.Configuration {
	all := slices.Clone(options)
	i := slices.IndexFunc(all, func(c conf.Configuration) bool { return c.Name == holds.Consolidate })
	if i < 0 {
		i, all = len(all), append(all, conf.Configuration{Name: holds.Consolidate})
	}
	all[i].Arguments = withArgument(all[i].Arguments, "after", "0s")
	if rested {
		all[i].Arguments = withArgument(all[i].Arguments, "rest", "0s")
	}
	return all
}

// keepMovesOnly takes out the actions that evict, and puts in the one that moves.
func (c *configuration) keepMovesOnly() {
	c.actions = slices.DeleteFunc(c.actions, func(a framework.Action) bool {
		return a.Name() == holds.Preempt || a.Name() == holds.Reclaim || a.Name() == holds.Consolidate
	})
	if moves, known := framework.GetAction(holds.Consolidate); known {
		c.actions = append(c.actions, moves)
	}
}

// LimitMoves has so many pods move at most for each that waits from now on; 0 is none.
func (c *Cluster) LimitMoves(most int) {
	c.movesNone = most == 0
	if c.movesNone {
		return
	}
	i := slices.IndexFunc(c.config.arguments, func(o conf.Configuration) bool { return o.Name == holds.Consolidate })
	c.config.arguments[i].Arguments = withArgument(c.config.arguments[i].Arguments, "moves", most)
}

// checkPlugin refuses a plugin that is not there, or that would ask somebody else.
func (c *configuration) checkPlugin(o *conf.PluginOption, path string) []error {
	if o.Name == "extender" {
		return []error{fmt.Errorf("%s: plugin extender asks a server, which a simulation must not: leave it out", path)}
	}
	if !hasPlugin(o.Name) {
		return []error{fmt.Errorf("%s: unknown plugin %q", path, o.Name)}
	}
	return nil
}

// withArgument returns the arguments with one more, and leaves those given as they are.
func withArgument(a framework.Arguments, key string, value any) framework.Arguments {
	out := framework.Arguments{key: value}
	for k, v := range a {
		if k != key {
			out[k] = v
		}
	}
	return out
}

// enabledActions are the names of the actions, as Volcano asks which are enabled.
func (c *configuration) enabledActions() map[string]bool {
	out := map[string]bool{}
	for _, a := range c.actions {
		out[a.Name()] = true
	}
	return out
}
