// SPDX-License-Identifier: Apache-2.0

// Package image makes container images of files, without a container runtime, and writes them as
// OCI image layouts. Manifests, digests and layouts are go-containerregistry's; ours is which files
// an image has. The same files give the same digest on every machine and at every time.
package image

import (
	"fmt"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Spec describes an image for one architecture.
type Spec struct {
	// Name is the image's full name with its tag, as the container runtime stores it.
	Name string `json:"name"`
	// Architecture is named as Go names it.
	Architecture string            `json:"architecture"`
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Env          []string          `json:"env,omitempty"`
	User         string            `json:"user,omitempty"` // "" is root
	Labels       map[string]string `json:"labels,omitempty"`
	Files        []File            `json:"files"`
}

func (s Spec) requireComplete() error {
	switch {
	case !strings.Contains(path.Base(s.Name), ":"):
		return fmt.Errorf("image %q: the name has no tag", s.Name)
	case s.Architecture == "":
		return fmt.Errorf("image %s: no architecture is given", s.Name)
	case len(s.Files) == 0:
		return fmt.Errorf("image %s: no files are given", s.Name)
	}
	return nil
}

// Build makes the image.
func Build(s Spec) (v1.Image, error) {
	if err := s.requireComplete(); err != nil {
		return nil, err
	}
	l, err := buildLayer(s.Files)
	if err != nil {
		return nil, fmt.Errorf("build image %s for %s: %w", s.Name, s.Architecture, err)
	}
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: l, History: v1.History{CreatedBy: "deviceshare: make images"}})
	if err != nil {
		return nil, fmt.Errorf("build image %s for %s: %w", s.Name, s.Architecture, err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("build image %s for %s: %w", s.Name, s.Architecture, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", s.Architecture
	config.Config = v1.Config{Entrypoint: s.Entrypoint, Env: s.Env, User: s.User, Labels: s.Labels}
	return mutate.ConfigFile(img, config)
}

// BuildIndex makes the images of one name and lists them, in the order given, in one index.
func BuildIndex(specs []Spec) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, s := range specs {
		img, err := Build(s)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: s.Architecture}}})
	}
	return index, nil
}

// Size is how much is downloaded of an image, in bytes: its layers, compressed.
func Size(img v1.Image) (int64, error) {
	layers, err := img.Layers()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			return 0, err
		}
		sum += size
	}
	return sum, nil
}
