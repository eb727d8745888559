// SPDX-License-Identifier: Apache-2.0

package schedulerconf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v2"
	"volcano.sh/volcano/pkg/scheduler"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/arguments"
)

// Reading is what comes of a text.
type Reading struct {
	// Text is what Volcano is given. It is empty if there are mistakes.
	Text string
	// Mistakes are what is wrong, with its path: nobody can go by the text.
	Mistakes []string
	// Notes are what was put right, or has no effect.
	Notes []string
}

// Known says what the scheduler was built with.
type Known struct {
	Action, Plugin func(name string) bool
}

// Registered is what is registered in this process at the moment of each question.
func Registered() Known {
	return Known{
		Action: func(name string) bool { _, ok := framework.GetAction(name); return ok },
		Plugin: func(name string) bool { _, ok := framework.GetPluginBuilder(name); return ok },
	}
}

// actionNames are the actions of this scheduler, in the order of the shipped configuration.
func actionNames() []string {
	return []string{"enqueue", "allocate", "consolidate", "reclaim", "preempt", "backfill", "shuffle"}
}

// newerActions are actions of later versions of Volcano, and those of this scheduler that do their
// work.
func newerActions() map[string]string {
	return map[string]string{"gangpreempt": "preempt", "gangreclaim": "reclaim"}
}

// Read reads a configuration strictly and reports every mistake. It is a pure function of the text
// and of what is known, but for the actions of the process, which Volcano's own reader looks up.
func Read(text string, known Known) Reading {
	var c conf.SchedulerConfiguration
	if strings.TrimSpace(text) == "" {
		return Reading{Mistakes: []string{"the text is empty"}}
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return Reading{Mistakes: []string{strings.TrimPrefix(err.Error(), "yaml: ")}}
	}
	r := Reading{Text: text}
	if actions := r.readActions(c.Actions, known); actions != c.Actions {
		r.replaceActions(actions)
	}
	r.checkKeys(text)
	r.checkPlugins(c.Tiers, known)
	if len(r.Mistakes) == 0 {
		if _, _, _, _, err := scheduler.UnmarshalSchedulerConf(r.Text); err != nil {
			r.Mistakes = append(r.Mistakes, err.Error())
		}
	}
	if len(r.Mistakes) > 0 {
		r.Text = ""
	}
	return r
}

// readActions returns the actions as Volcano spells them.
func (r *Reading) readActions(text string, known Known) string {
	var out []string
	for i, item := range strings.Split(text, ",") {
		name, path := strings.TrimSpace(item), fmt.Sprintf("actions[%d]", i)
		lower := strings.ToLower(name)
		switch {
		case name == "":
			if strings.TrimSpace(text) != "" {
				r.addNote("%s: nothing stands between two commas, or behind the last one", path)
			}
			continue
		case known.Action(name):
		case known.Action(lower):
			r.addNote("%s: %s is read as %s", path, name, lower)
			name = lower
		case newerActions()[lower] != "":
			r.addMistake("%s: %s is of a later version of Volcano: write %s, which does it for gangs, too", path, name, newerActions()[lower])
		default:
			r.addMistake("%s: unknown action %q: want some of %s", path, name, strings.Join(actionNames(), ", "))
		}
		if slices.Contains(out, name) {
			r.addNote("%s: %s is done twice in a session", path, name)
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		r.addMistake(`actions: there are none: want a text such as "enqueue, allocate, backfill"`)
	}
	return strings.Join(out, ", ")
}

// replaceActions writes other actions into the text, and leaves everything else as it is.
func (r *Reading) replaceActions(actions string) {
	var whole yaml.MapSlice
	if err := yaml.Unmarshal([]byte(r.Text), &whole); err != nil {
		r.addMistake("%v", err)
		return
	}
	for i := range whole {
		if whole[i].Key == "actions" {
			whole[i].Value = actions
		}
	}
	out, err := yaml.Marshal(whole)
	if err != nil {
		r.addMistake("%v", err)
	}
	r.Text = string(out)
}

// checkKeys notes what Volcano passes over in silence: keys that it does not know, and keys that
// stand twice.
func (r *Reading) checkKeys(text string) {
	var wrong *yaml.TypeError
	if !errors.As(yaml.UnmarshalStrict([]byte(text), &conf.SchedulerConfiguration{}), &wrong) {
		return
	}
	for _, what := range wrong.Errors { // such as: line 9: field enableX not found in type conf.Y
		what, _, _ = strings.Cut(what, " in type ")
		r.addNote("without effect: %s", what)
	}
}

// checkPlugins wants that plugin deviceshare takes part, once, and is asked.
func (r *Reading) checkPlugins(tiers []conf.Tier, known Known) {
	found := 0
	for i := range tiers {
		for k := range tiers[i].Plugins {
			o, path := &tiers[i].Plugins[k], fmt.Sprintf("tiers[%d].plugins[%d]", i, k)
			switch {
			case o.Name == arguments.PluginName:
				found++
				if o.EnabledPredicate != nil && !*o.EnabledPredicate {
					r.addMistake("%s.enablePredicate: plugin %s must be asked which nodes a pod fits", path, o.Name)
				}
			case o.Name == "":
				r.addMistake("%s.name: missing", path)
			case !known.Plugin(o.Name):
				r.addNote("%s: unknown plugin %q is left out", path, o.Name)
			}
		}
	}
	switch {
	case found == 0:
		r.addMistake("tiers: plugin %s is in none of them: pods with devices would be bound without any", arguments.PluginName)
	case found > 1:
		r.addMistake("tiers: plugin %s is there %d times", arguments.PluginName, found)
	}
}

func (r *Reading) addMistake(format string, args ...any) {
	r.Mistakes = append(r.Mistakes, fmt.Sprintf(format, args...))
}

func (r *Reading) addNote(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}
