// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/request"
)

// Arguments are the plugin's arguments in the scheduler's configuration. The
// names are those of Volcano's own plugin.
type Arguments struct {
	// Enabled turns the plugin on. It is on unless the configuration says
	// otherwise.
	Enabled bool
	// Policy chooses devices and nodes for pods that name no policy themselves.
	Policy policy.Policy
	// Weight multiplies the score of a node, 0 to 100. 0 turns scoring off.
	Weight float64
	// ModeWeights is what modes are worth to pods that name none.
	ModeWeights policy.Weights
	// Weighted are the policies with these weights, by name; nil without weights.
	Weighted map[string]policy.Policy
	// ConfigName and ConfigNamespace say where the device configuration is.
	ConfigName, ConfigNamespace string
	// Apart are the rules that keep pods on different devices.
	Apart nodes.ApartRules
	// Notes are things accepted that have no effect.
	Notes []string
}

// PluginName is the name under which the scheduler's configuration asks for the plugin; it takes
// the place of the plugin of that name in Volcano.
const PluginName = "deviceshare"

// The arguments.
const (
	argEnabled         = "deviceshare.VGPUEnable"
	argPolicy          = "deviceshare.SchedulePolicy"
	argWeight          = "deviceshare.ScheduleWeight"
	argConfigName      = "deviceshare.KnownGeometriesCMName"
	argConfigNamespace = "deviceshare.KnownGeometriesCMNamespace"
	argNodeLock        = "deviceshare.NodeLockEnable"
	argModeWeight      = "deviceshare.ModeWeight." // and a mode
	argExclusiveRules  = request.ExclusiveRules
)

const (
	defaultPolicy          = "fragmentation"
	defaultWeight          = 10
	defaultConfigName      = "volcano-vgpu-device-config"
	defaultConfigNamespace = "kube-system"
)

// refusedArguments turn on device kinds of Volcano that this plugin replaces and does not serve.
// Pods that ask for those devices get none from this scheduler, and other pods are as ever.
func refusedArguments() []string {
	return []string{
		"deviceshare.GPUSharingEnable", "deviceshare.GPUNumberEnable",
		"deviceshare.AscendMindClusterVNPUEnable", "deviceshare.AscendHAMiVNPUEnable",
	}
}

// Consequence is what a mistake in an argument does.
type Consequence int

// From the mildest to the worst.
const (
	// LeftOut: the argument is not known or not served, and all the others hold.
	LeftOut Consequence = iota
	// Defaulted: the value cannot be used. Earlier arguments stay in force; where there are none,
	// the default takes the place of the value.
	Defaulted
	// Withholding: the value cannot be used, and no other may be guessed. Earlier arguments stay in
	// force; where there are none, pods with devices wait.
	Withholding
)

// Mistake is one thing wrong with an argument.
type Mistake struct {
	Path, Message string
	Consequence   Consequence
}

func (m Mistake) String() string { return m.Path + ": " + m.Message }

// worstConsequence is the worst consequence of mistakes, LeftOut if there are none.
func worstConsequence(mistakes []Mistake) Consequence {
	out := LeftOut
	for _, m := range mistakes {
		out = max(out, m.Consequence)
	}
	return out
}

// Read reads the arguments and reports every mistake. A value may have the type of its
// argument, or be the text of one. The arguments are usable unless a mistake withholds them.
func Read(in framework.Arguments) (Arguments, []Mistake) {
	r := reader{in: in, known: refusedArguments()}
	out := Arguments{
		Enabled:         r.readBool(argEnabled, true, Withholding),
		ConfigName:      r.readText(argConfigName, defaultConfigName, Withholding),
		ConfigNamespace: r.readText(argConfigNamespace, defaultConfigNamespace, Withholding),
		Weight:          r.readNumber(argWeight, defaultWeight),
	}
	for _, m := range sharing.Modes() {
		if n := r.readNumber(argModeWeight+string(m), 0); n > policy.MaxWeight {
			r.addMistake(Defaulted, argModeWeight+string(m), "want a number up to %d, got %v", policy.MaxWeight, n)
		} else if n > 0 {
			if out.ModeWeights == nil {
				out.ModeWeights = policy.Weights{}
			}
			out.ModeWeights[m] = n
		}
	}
	if len(out.ModeWeights) > 0 {
		out.Weighted = weightedPolicies(out.ModeWeights)
	}
	out.Policy = r.resolvePolicy(r.readText(argPolicy, defaultPolicy, Defaulted))
	if r.readBool(argNodeLock, false, LeftOut) {
		out.Notes = append(out.Notes, argNodeLock+" has no effect: there is no node lock")
	}
	out.Apart = r.readExclusiveRules(argExclusiveRules)
	r.checkRefused()
	r.checkUnknown()
	slices.SortFunc(r.mistakes, func(a, b Mistake) int { return strings.Compare(a.Path, b.Path) })
	return out, r.mistakes
}

// weightedPolicies returns the placement policies of a session, weighted by mode.
func weightedPolicies(w policy.Weights) map[string]policy.Policy {
	out := map[string]policy.Policy{}
	for _, name := range policy.Names() {
		if p, ok := policy.Named(name); ok {
			out[name] = policy.WithModes(p, w)
		}
	}
	return out
}

// reader collects mistakes while it reads.
type reader struct {
	in       framework.Arguments
	known    []string
	mistakes []Mistake
}

func (r *reader) addMistake(c Consequence, path, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{Path: path, Message: fmt.Sprintf(format, args...), Consequence: c})
}

// readBool reads true or false, also as a text that says so, and as 1 or 0.
func (r *reader) readBool(key string, def bool, c Consequence) bool {
	r.known = append(r.known, key)
	v, ok := r.in[key]
	if !ok {
		return def
	}
	is, ok := truthOf(v)
	if !ok {
		r.addMistake(c, key, "want true or false, got %v (%T)", v, v)
		return def
	}
	return is
}

// truthOf returns what a value says as a truth, false if it says none.
func truthOf(v any) (is, ok bool) {
	if is, ok := v.(bool); ok {
		return is, true
	}
	if text, ok := v.(string); ok {
		is, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(text)))
		return is, err == nil
	}
	n, ok := numberOf(v)
	return n == 1, ok && (n == 0 || n == 1)
}

// readText reads a text. A whole number is one whose quotes were forgotten.
func (r *reader) readText(key, def string, c Consequence) string {
	r.known = append(r.known, key)
	switch v := r.in[key].(type) {
	case nil:
		if _, ok := r.in[key]; !ok {
			return def
		}
		r.addMistake(c, key, "want a text, got nothing")
	case string:
		return v
	case int, int64:
		return fmt.Sprint(v)
	default:
		r.addMistake(c, key, "want a text, got %v (%T)", v, v)
	}
	return def
}

func (r *reader) readNumber(key string, def float64) float64 {
	r.known = append(r.known, key)
	v, ok := r.in[key]
	if !ok {
		return def
	}
	n, ok := numberOf(v)
	if !ok {
		r.addMistake(Defaulted, key, "want a number, got %v (%T)", v, v)
		return def
	}
	if n < 0 || n != n || math.IsInf(n, 0) {
		r.addMistake(Defaulted, key, "want a number from 0 up, got %v", n)
		return def
	}
	return n
}

// numberOf returns what a value says as a number, false if it says none.
func numberOf(v any) (n float64, ok bool) {
	switch x := v.(type) {
	case int:
		return float64(x), true
	case int64:
		return float64(x), true
	case float64:
		return x, true
	case string:
		n, err := strconv.ParseFloat(strings.TrimSpace(x), 64)
		return n, err == nil
	}
	return 0, false
}

func (r *reader) resolvePolicy(name string) policy.Policy {
	if name == "" {
		name = defaultPolicy
	}
	p, ok := policy.Named(name)
	if !ok {
		r.addMistake(Defaulted, argPolicy, "unknown policy %q: want one of %s", name, strings.Join(policy.Names(), ", "))
		p, _ = policy.Named(defaultPolicy)
	}
	return p
}

func (r *reader) checkRefused() {
	for _, key := range refusedArguments() {
		if _, ok := r.in[key]; ok && r.readBool(key, false, LeftOut) {
			r.addMistake(LeftOut, key, "not served by this scheduler, which goes on without: remove it, or run the scheduler that Volcano ships")
		}
	}
}

func (r *reader) checkUnknown() {
	for key := range r.in {
		if !slices.Contains(r.known, key) {
			known := slices.Sorted(slices.Values(r.known))
			r.addMistake(LeftOut, key, "unknown argument, which is left out: want one of %s", strings.Join(slices.Compact(known), ", "))
		}
	}
}
