// SPDX-License-Identifier: Apache-2.0

// Package product says what is in the images that users install, and makes their files: the
// programs, the library and, for the device plugin, a base of Debian packages.
package product

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"

	"github.com/distribution/reference"

	"deviceshare/manifests/images/image"
)

// Product is one of the images.
type Product struct {
	// Name is the last part of the image's name; the program is deviceshare-<Name>.
	Name        string
	Description string
	// Place is the program's path in the image.
	Place string
	// User is who the program runs as where the pod does not say it.
	User string
	// isDynamic programs load libraries: NVIDIA's is opened when they run. The others are alone in
	// their images.
	isDynamic bool
	// FIPS is the version of Go's FIPS 140-3 module that the programs use, such as v1.0.0. Empty
	// takes the toolchain's own cryptography, which nobody validates.
	FIPS string
}

// nonroot is the user of the chart's pods for programs that need no rights on their node.
const nonroot = "65532:65532"

// Products are the images of a release.
func Products() []Product {
	return []Product{
		{Name: "scheduler", Description: "The Volcano scheduler with the plugin that places GPU shares", Place: "/deviceshare-scheduler", User: nonroot},
		{Name: "webhook", Description: "Completes and checks pods that ask for GPU shares", Place: "/deviceshare-webhook", User: nonroot},
		{Name: "view", Description: "Shows shared GPUs, waiting pods and queues as a page", Place: "/deviceshare-view", User: nonroot},
		{Name: "device-plugin", Description: "Publishes and prepares the shared GPUs of one node", Place: "/usr/bin/deviceshare-device-plugin", isDynamic: true},
	}
}

// Program is the name of the product's command.
func (p Product) Program() string { return "deviceshare-" + p.Name }

// ID tells the images of a release apart.
func (p Product) ID() string { return p.Name + formatSuffix(p.FIPS) }

// Tag is the tag of the image in a release of a version.
func (p Product) Tag(version string) string { return version + formatSuffix(p.FIPS) }

// formatSuffix ends the names of what is built with a FIPS 140-3 module. The chart knows it too.
func formatSuffix(fips string) string {
	if fips == "" {
		return ""
	}
	return "-fips"
}

var fipsForm = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// CheckFIPS returns an error if a text is no version of Go's FIPS 140-3 module. GOFIPS140 also
// takes names, such as latest, whose meaning changes with the toolchain.
func CheckFIPS(version string) error {
	if !fipsForm.MatchString(version) {
		return fmt.Errorf("version %q of Go's FIPS 140-3 module: want one such as v1.0.0", version)
	}
	return nil
}

// HasBase reports whether the image has files of Debian packages.
func (p Product) HasBase() bool { return p.isDynamic }

// formatImageName returns the full name of the product's image, as a container runtime stores it.
func (p Product) formatImageName(version string) (string, error) {
	named, err := reference.ParseNormalizedNamed("deviceshare/" + p.Name)
	if err != nil {
		return "", fmt.Errorf("name the image of the %s: %w", p.Name, err)
	}
	tagged, err := reference.WithTag(named, p.Tag(version))
	if err != nil {
		return "", fmt.Errorf("name the image of the %s: version %q: %w", p.Name, version, err)
	}
	return tagged.String(), nil
}

// Labels are those of the OCI image specification.
func (p Product) Labels(version, revision string) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":       p.Program(),
		prefix + "description": p.Description,
		prefix + "licenses":    "Apache-2.0",
		prefix + "version":     p.Tag(version),
		prefix + "revision":    revision,
	}
}

// libraries are what the device plugin brings to the host: file in the build directory of hami-core
// to place in the image. Those in standin/ are the library under the names of the driver's.
var libraries = map[string]string{
	"libvgpu.so":        "opt/deviceshare/libvgpu.so",
	"libcuda.so.1":      "opt/deviceshare/standin/libcuda.so.1",
	"libnvidia-ml.so.1": "opt/deviceshare/standin/libnvidia-ml.so.1",
}

// hook is NVIDIA's program that the CDI specifications have containers started with. The device
// plugin brings it to the host, so that specifications and hook are of one version.
const hook = "nvidia-cdi-hook"

// ownHook is ours, which the runtime runs before containers with a share start. The host runs it
// too.
const ownHook = "deviceshare-hook"

// listOwnFiles lists the files of the image that are compiled for it: place in the image to file
// below the directory with what was built for one architecture.
func (p Product) listOwnFiles() map[string]string {
	bin := programDir(p.FIPS)
	files := map[string]string{p.Place[1:]: filepath.Join(bin, p.Program())}
	if p.isDynamic {
		for file, place := range libraries {
			files[place] = filepath.Join("hami-core", file)
		}
		for _, name := range []string{hook, ownHook} {
			files["opt/deviceshare/"+name] = filepath.Join(bin, name)
		}
	}
	return files
}

// imageSpec describes the image for one architecture, of what is built in dir.
func (p Product) imageSpec(arch, dir, version, revision string) (image.Spec, error) {
	name, err := p.formatImageName(version)
	if err != nil {
		return image.Spec{}, err
	}
	s := image.Spec{Name: name, Architecture: arch, Entrypoint: []string{p.Place}, User: p.User, Labels: p.Labels(version, revision)}
	if p.isDynamic {
		if s.Files, err = image.Tree(filepath.Join(dir, "base")); err != nil {
			return image.Spec{}, err
		}
	}
	for place, file := range maps.All(p.listOwnFiles()) {
		s.Files = append(s.Files, image.File{Path: place, Source: filepath.Join(dir, file), Mode: 0o755})
	}
	return s, nil
}
