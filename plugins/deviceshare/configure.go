// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/arguments"
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

// readArguments reads the arguments of a session, and says once what is wrong with them. The
// session goroutine calls it.
func (s *Store) readArguments(raw framework.Arguments) arguments.Reading {
	read := s.arguments.Read(raw)
	if !read.IsOther {
		return read
	}
	s.metrics.ArgumentMistakes.Set(float64(len(read.Mistakes)))
	for _, m := range read.Mistakes {
		klog.ErrorS(nil, "Mistake in the arguments of plugin "+PluginName, "argument", m.Path, "mistake", m.Message,
			"keepsEarlier", read.Usable && !read.IsAdopted, "stopsPods", !read.Usable)
	}
	if !read.IsAdopted {
		return read
	}
	for _, note := range read.Notes {
		klog.InfoS("Argument of plugin "+PluginName+" without effect", "note", note)
	}
	s.era++
	if s.config != nil {
		s.config.Use(read.ConfigNamespace, read.ConfigName)
	}
	return read
}

// checkAction logs what is wrong with the arguments of an action, once for each configuration. It
// reports whether nothing is. The session goroutine calls it.
func (s *Store) checkAction(action string, mistakes ...string) (isRight bool) {
	last, said := s.actionMistakes[action], strings.Join(mistakes, "; ")
	if isNewMistake(&last, said) {
		klog.ErrorS(nil, "An action evicts nobody until its arguments are right", "action", action, "mistakes", said)
	}
	s.actionMistakes[action] = last
	return said == ""
}

// checkTiers logs what is wrong with the tiers, once for each configuration. The session
// goroutine calls it.
func (s *Store) checkTiers(tiers []conf.Tier) {
	said := strings.Join(arguments.TierMistakes(tiers, isActionEnabled("preempt"), isActionEnabled("reclaim")), "; ")
	if isNewMistake(&s.tierMistakes, said) {
		klog.ErrorS(nil, "Pods may be evicted in vain: put all plugins that say who may be evicted into the tier of plugin "+PluginName, "tiers", said)
	}
}

// isNewMistake reports whether there is a mistake that was not said last, and remembers it. "" is
// none.
func isNewMistake(last *string, said string) bool {
	isNew := said != "" && said != *last
	*last = said
	return isNew
}
