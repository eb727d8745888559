// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"strings"

	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing"
	"deviceshare/sharing/policy"
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
	// weighted are the policies with these weights, by name.
	weighted map[string]policy.Policy
	// ConfigName and ConfigNamespace say where the device configuration is.
	ConfigName, ConfigNamespace string
	// Notes are things accepted that have no effect.
	Notes []string
}

// The arguments.
const (
	argEnabled         = "deviceshare.VGPUEnable"
	argPolicy          = "deviceshare.SchedulePolicy"
	argWeight          = "deviceshare.ScheduleWeight"
	argConfigName      = "deviceshare.KnownGeometriesCMName"
	argConfigNamespace = "deviceshare.KnownGeometriesCMNamespace"
	argNodeLock        = "deviceshare.NodeLockEnable"
	argModeWeight      = "deviceshare.ModeWeight." // and a mode
)

const (
	defaultPolicy          = "fragmentation"
	defaultWeight          = 10
	defaultConfigName      = "volcano-vgpu-device-config"
	defaultConfigNamespace = "kube-system"
)

// refusedArguments turn on device kinds of Volcano that this plugin replaces
// and does not serve.
func refusedArguments() []string {
	return []string{
		"deviceshare.GPUSharingEnable", "deviceshare.GPUNumberEnable",
		"deviceshare.AscendMindClusterVNPUEnable", "deviceshare.AscendHAMiVNPUEnable",
	}
}

// Mistake is one thing wrong with an argument.
type Mistake struct {
	Path, Message string
}

func (m Mistake) String() string { return m.Path + ": " + m.Message }

// ReadArguments reads the arguments strictly and reports every mistake. The
// arguments are usable only if there is none.
func ReadArguments(in framework.Arguments) (Arguments, []Mistake) {
	r := reader{in: in, known: refusedArguments()}
	out := Arguments{
		Enabled:         argument(&r, argEnabled, true),
		ConfigName:      argument(&r, argConfigName, defaultConfigName),
		ConfigNamespace: argument(&r, argConfigNamespace, defaultConfigNamespace),
		Weight:          r.number(argWeight, defaultWeight),
	}
	for _, m := range sharing.Modes() {
		if n := r.number(argModeWeight+string(m), 0); n > policy.MaxWeight {
			r.mistake(argModeWeight+string(m), "want a number up to %d, got %v", policy.MaxWeight, n)
		} else if n > 0 {
			if out.ModeWeights == nil {
				out.ModeWeights = policy.Weights{}
			}
			out.ModeWeights[m] = n
		}
	}
	if len(out.ModeWeights) > 0 {
		out.weighted = policies(out.ModeWeights)
	}
	out.Policy = r.policy(argument(&r, argPolicy, defaultPolicy))
	if argument(&r, argNodeLock, false) {
		out.Notes = append(out.Notes, argNodeLock+" has no effect: there is no node lock")
	}
	r.refused()
	r.unknown()
	slices.SortFunc(r.mistakes, func(a, b Mistake) int { return strings.Compare(a.Path, b.Path) })
	return out, r.mistakes
}

// reader collects mistakes while it reads.
type reader struct {
	in       framework.Arguments
	known    []string
	mistakes []Mistake
}

func (r *reader) mistake(path, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{Path: path, Message: fmt.Sprintf(format, args...)})
}

// argument reads one value of exactly the type of its default.
func argument[T bool | string](r *reader, key string, def T) T {
	r.known = append(r.known, key)
	v, ok := r.in[key]
	if !ok {
		return def
	}
	t, ok := v.(T)
	if !ok {
		r.mistake(key, "want a %T, got %v (%T)", def, v, v)
		return def
	}
	return t
}

func (r *reader) number(key string, def float64) float64 {
	r.known = append(r.known, key)
	v, ok := r.in[key]
	if !ok {
		return def
	}
	var n float64
	switch x := v.(type) {
	case int:
		n = float64(x)
	case int64:
		n = float64(x)
	case float64:
		n = x
	default:
		r.mistake(key, "want a number, got %v (%T)", v, v)
		return def
	}
	if n < 0 || n != n {
		r.mistake(key, "want a number from 0 up, got %v", n)
		return def
	}
	return n
}

func (r *reader) policy(name string) policy.Policy {
	if name == "" {
		name = defaultPolicy
	}
	p, ok := policy.Named(name)
	if !ok {
		r.mistake(argPolicy, "unknown policy %q: want one of %s", name, strings.Join(policy.Names(), ", "))
	}
	return p
}

func (r *reader) refused() {
	for _, key := range refusedArguments() {
		switch v := r.in[key].(type) {
		case nil:
		case bool:
			if v {
				r.mistake(key, "not served by this scheduler: remove it, or run the scheduler that Volcano ships")
			}
		default:
			r.mistake(key, "want a bool, got %v (%T)", v, v)
		}
	}
}

func (r *reader) unknown() {
	for key := range r.in {
		if !slices.Contains(r.known, key) {
			known := slices.Sorted(slices.Values(r.known))
			r.mistake(key, "unknown argument: want one of %s", strings.Join(known, ", "))
		}
	}
}
