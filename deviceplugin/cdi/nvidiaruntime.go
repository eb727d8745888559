// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"deviceshare/deviceplugin/host"
)

// nvidiaRuntime is how the names of NVIDIA's runtimes begin: there are also ones for each of its
// modes.
const nvidiaRuntime = "nvidia-container-runtime"

// acceptEnvironment is the setting of NVIDIA's runtime by which a container gets the devices that
// its environment names.
const acceptEnvironment = "accept-nvidia-visible-devices-envvar-when-unprivileged"

// handler is a program with which the container runtime starts containers.
type handler struct {
	name, program string
	isDefault     bool
}

func (h handler) isNVIDIA() bool { return strings.HasPrefix(filepath.Base(h.program), nvidiaRuntime) }

// GivesUnasked says why a container gets devices that its pod does not ask for, if the node is
// set so that it does: NVIDIA's runtime by default gives it those that its image or its
// environment names. It is ErrRuntimeSilent if the runtime does not say what it starts
// containers with, and another error if it does not answer.
func (r Runtime) GivesUnasked(ctx context.Context) (why string, does bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	client, end, err := r.dial()
	if err != nil {
		return "", false, err
	}
	defer end()
	settings, err := client.readSettings(ctx)
	if err != nil {
		return "", false, err
	}
	all, err := readHandlers(settings)
	if err != nil {
		return "", false, err
	}
	for _, h := range all {
		if !h.isNVIDIA() {
			continue
		}
		if why, does := r.handlerGivesUnasked(h); does {
			return why, true, nil
		}
	}
	return "", false, nil
}

// handlerGivesUnasked says why containers of one of NVIDIA's runtimes get devices that nobody asked
// for, if they do.
func (r Runtime) handlerGivesUnasked(h handler) (why string, does bool) {
	file, accepts, err := r.nvidiaSettings(h.program)
	switch {
	case err == nil && !accepts:
		return "", false
	case err != nil:
		return fmt.Sprintf("it is not known whether NVIDIA's runtime %q gives containers devices that nobody asked for: %v", h.name, err), true
	case h.isDefault:
		return fmt.Sprintf("the default runtime of the node, %q, is NVIDIA's and gives a container every device if its image says "+
			"NVIDIA_VISIBLE_DEVICES=all, without limits: set %s = false in %s, or make another runtime the default",
			h.name, acceptEnvironment, file), true
	}
	return fmt.Sprintf("the runtime %q is NVIDIA's and gives a container every device if its pod names the RuntimeClass of it and "+
		"NVIDIA_VISIBLE_DEVICES=all, without limits: set %s = false in %s", h.name, acceptEnvironment, file), true
}

// nvidiaSettings reads whether one of NVIDIA's runtimes accepts the devices that an environment
// names. NVIDIA's GPU operator keeps its settings beside the program.
func (r Runtime) nvidiaSettings(program string) (file string, accepts bool, err error) {
	const below = nvidiaRuntime + "/config.toml"
	places := []string{filepath.Join("/etc", below)}
	if filepath.IsAbs(program) {
		places = slices.Insert(places, 0, filepath.Join(filepath.Dir(program), ".config", below))
	}
	for _, file = range places {
		path, err := r.onHost(file)
		if err != nil {
			return file, true, fmt.Errorf("find %s: %w", file, err)
		}
		text, err := host.OS{}.Read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return file, true, fmt.Errorf("read %s: %w", file, err)
		}
		accepts, err = acceptsEnvironment(text)
		if err != nil {
			return file, true, fmt.Errorf("read %s: %w", file, err)
		}
		return file, accepts, nil
	}
	return file, true, nil // it goes by its own defaults
}

// acceptsEnvironment reads the settings of NVIDIA's runtime. Where they say nothing it does.
func acceptsEnvironment(text []byte) (bool, error) {
	var settings map[string]any
	if err := toml.Unmarshal(text, &settings); err != nil {
		return true, err
	}
	value, isSet := settings[acceptEnvironment]
	if !isSet {
		return true, nil
	}
	accepts, is := value.(bool)
	if !is {
		return true, fmt.Errorf("%s: want true or false, not %v", acceptEnvironment, value)
	}
	return accepts, nil
}

// readHandlers reads what containerd or CRI-O starts containers with from its settings, the default
// first.
func readHandlers(settings string) ([]handler, error) {
	var s struct {
		Containerd struct {
			Default  string `json:"defaultRuntimeName"`
			Runtimes map[string]struct {
				Options struct {
					Program string `json:"BinaryName"`
				} `json:"options"`
			} `json:"runtimes"`
		} `json:"containerd"`
		CRIO struct {
			Default  string `json:"DefaultRuntime"`
			Runtimes map[string]struct {
				Program string `json:"RuntimePath"`
			} `json:"Runtimes"`
		} `json:"crio"`
	}
	if settings == "" {
		return nil, ErrRuntimeSilent
	}
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		return nil, fmt.Errorf("read what the container runtime starts containers with: %w", err)
	}
	var all []handler
	for name, x := range s.Containerd.Runtimes {
		all = append(all, handler{name, x.Options.Program, name == s.Containerd.Default})
	}
	for name, x := range s.CRIO.Runtimes {
		all = append(all, handler{name, x.Program, name == s.CRIO.Default})
	}
	if len(all) == 0 {
		return nil, ErrRuntimeSilent
	}
	slices.SortFunc(all, func(a, b handler) int {
		if a.isDefault != b.isDefault {
			return map[bool]int{true: -1, false: 1}[a.isDefault]
		}
		return strings.Compare(a.name, b.name)
	})
	return all, nil
}
