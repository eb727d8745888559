// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"fmt"
	"maps"
	"reflect"

	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
)

// errNoPlacement stops the bind of a pod that asks for devices and was given none.
var errNoPlacement = errors.New("the pod asks for devices and none were reserved for it")

// errBadArguments is why no pod with devices is placed before the arguments were right
// once.
var errBadArguments = errors.New("the arguments of the scheduler's plugin " + PluginName + " have mistakes, see its log")

// errNotPlaced is for a task that is put on a node although the predicate refused.
func errNotPlaced(node string) error {
	return fmt.Errorf("give devices of node %s: the node, the pod or the plugin's configuration does not allow it", node)
}

// lastArguments are the arguments of the last session and the last ones that
// could be read, and what was last said about the tiers.
type lastArguments struct {
	tiers  string
	raw    framework.Arguments
	seen   bool
	good   Arguments
	usable bool
	// ruled are the settings plain with the rules of the arguments.
	ruled, plain *nodes.Settings
}

// readArguments reads the arguments of a session if they changed. Mistakes are reported once. A
// value that cannot be used keeps what was in force before; usable is false only if there was
// nothing before and a mistake withholds the arguments. The session goroutine calls it.
func (s *Store) readArguments(raw framework.Arguments) (args Arguments, usable bool) {
	last := &s.arguments
	if last.seen && reflect.DeepEqual(last.raw, raw) {
		return last.good, last.usable
	}
	last.raw, last.seen = maps.Clone(raw), true
	args, mistakes := ReadArguments(raw)
	s.metrics.argumentMistakes.Set(float64(len(mistakes)))
	bad := worstConsequence(mistakes)
	for _, m := range mistakes {
		klog.ErrorS(nil, "Mistake in the arguments of plugin "+PluginName, "argument", m.Path, "mistake", m.Message,
			"keepsEarlier", last.usable && bad > LeftOut, "stopsPods", !last.usable && bad == Withholding)
	}
	if bad > LeftOut && last.usable || bad == Withholding {
		return last.good, last.usable
	}
	for _, note := range args.Notes {
		klog.InfoS("Argument of plugin "+PluginName+" without effect", "note", note)
	}
	last.good, last.usable, last.ruled, last.plain = args, true, nil, nil
	s.era++
	if s.config != nil {
		s.config.Use(args.ConfigNamespace, args.ConfigName)
	}
	return args, true
}

// withRules returns the settings with the rules of the arguments in force, the same value for the
// same settings: nodes are read again when it is another one.
func (s *Store) withRules(plain *nodes.Settings, rules nodes.ApartRules) *nodes.Settings {
	if len(rules) == 0 {
		return plain
	}
	last := &s.arguments
	if last.plain != plain {
		ruled := *plain
		ruled.Apart, last.plain, last.ruled = rules, plain, &ruled
	}
	return last.ruled
}
