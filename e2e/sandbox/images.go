// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"deviceshare/e2e/helm"
)

// image describes a container image as the image builder of manifests/images reads it.
type image struct {
	Name         string      `json:"name"` // in full, with its tag
	Architecture string      `json:"architecture"`
	Entrypoint   []string    `json:"entrypoint,omitempty"`
	Env          []string    `json:"env,omitempty"`
	Files        []imageFile `json:"files"`
}

// imageFile is one file of an image: a directory (the path ends in "/"), a link, a text, or a copy
// of a host file.
type imageFile struct {
	Path   string `json:"path"`
	Link   string `json:"link,omitempty"`
	Text   string `json:"text,omitempty"`
	Source string `json:"source,omitempty"`
	Mode   int64  `json:"mode,omitempty"`
}

// imageBuilder is the program that makes images. It is a module of its own, so that what it needs
// does not become the product's.
func imageBuilder(l layout) target {
	return target{what: "the image builder", module: "manifests/images", packages: []string{"."}, output: l.bin("images"),
		flags: []string{"-ldflags=" + ldStrip}}
}

// imageTools are the host programs in the cudaclient image; those that the host lacks are left out.
var imageTools = [...]string{"sh", "cat", "sleep", "ls", "env", "true", "false", "id", "mkdir", "rm", "grep", "head"}

// imageLibraries are in the cudaclient image even if no program there names them: libvgpu.so and
// the fake driver do.
var imageLibraries = [...]string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"}

// buildImages writes the archives of all images.
func buildImages(ctx context.Context, o Options, l layout) error {
	if err := build(ctx, o, l, imageBuilder(l)); err != nil {
		return err
	}
	if o.Installed {
		if err := buildInstaller(ctx, o, l); err != nil {
			return err
		}
	}
	o.Progress("building images")
	pause := image{Name: runtimeName(ImagePause), Architecture: runtime.GOARCH, Entrypoint: []string{"/pause"},
		Files: []imageFile{{Path: "pause", Source: l.bin("pause"), Mode: 0o755}}}
	client, err := clientImage(l)
	if err != nil {
		return err
	}
	bare, err := bareImage(l)
	if err != nil {
		return err
	}
	wantsAll := client
	wantsAll.Name, wantsAll.Env = runtimeName(ImageWantsAll), append(slices.Clone(client.Env), "NVIDIA_VISIBLE_DEVICES=all")
	all := map[string]image{"pause": pause, "cudaclient": client, "wants-all": wantsAll, "bare": bare, "hostile": hostileImage(l)}
	if o.Installed && o.StockScheduler {
		all[VolcanoScheduler] = volcanoImage(l)
	}
	for name, img := range all {
		if err := pack(ctx, o, l, name, img); err != nil {
			return err
		}
	}
	return nil
}

// pack builds the archive of one image of its description, which stays beside it.
func pack(ctx context.Context, o Options, l layout, name string, img image) error {
	text, err := json.MarshalIndent(img, "", "  ")
	if err != nil {
		return fmt.Errorf("describe image %s: %w", name, err)
	}
	description := strings.TrimSuffix(l.image(name), ".tar") + ".json"
	if err := os.MkdirAll(filepath.Dir(description), 0o755); err != nil {
		return fmt.Errorf("describe image %s: %w", name, err)
	}
	if err := os.WriteFile(description, text, 0o644); err != nil {
		return fmt.Errorf("describe image %s: %w", name, err)
	}
	return runQuiet(ctx, o, "image "+name, l.repo, l.bin("images"), "pack", description, l.image(name))
}

// buildInstaller makes what an installation takes: helm, and the images that the chart names.
func buildInstaller(ctx context.Context, o Options, l layout) error {
	o.Progress("building helm")
	if _, err := helm.Build(ctx, l.repo, o.Progress); err != nil {
		return err
	}
	o.Progress("building the product's images")
	return runQuiet(ctx, o, "the product's images", l.repo, l.bin("images"), "build", "--archives", "--arch", runtime.GOARCH)
}

// clientImage is the workload of demo and tests: the CUDA client, a shell and a few tools, with the
// libraries of this host. It holds no libcuda.so: that comes with the device, as in a real CUDA
// image.
func clientImage(l layout) (image, error) {
	img := image{Name: runtimeName(ImageCUDAClient), Architecture: runtime.GOARCH, Env: []string{"PATH=/usr/bin"}}
	programs := map[string]string{}
	for _, tool := range imageTools {
		if path, err := exec.LookPath(tool); err == nil {
			programs["usr/bin/"+tool] = path
		}
	}
	if client := filepath.Join(l.repo, "e2e/fakegpu/build/cudaclient"); exists(client) {
		programs["usr/bin/cudaclient"] = client
	}
	c := newCollector()
	for dest, source := range programs {
		real, err := filepath.EvalSymlinks(source)
		if err != nil {
			return img, fmt.Errorf("build image %s: %w", img.Name, err)
		}
		if err := c.add(dest, real); err != nil {
			return img, fmt.Errorf("build image %s: %w", img.Name, err)
		}
	}
	for _, lib := range imageLibraries {
		if err := c.library(lib); err != nil && lib == "libc.so.6" {
			return img, fmt.Errorf("build image %s: %w", img.Name, err)
		}
	}
	other, err := otherLoader(l, c)
	if err != nil {
		return img, fmt.Errorf("build image %s: %w", img.Name, err)
	}
	old, err := oldLibrary(l, c)
	if err != nil {
		return img, fmt.Errorf("build image %s: %w", img.Name, err)
	}
	img.Files = append(append(imageSkeleton(), c.files()...), other, old)
	if client := programs["usr/bin/cudaclient"]; client != "" {
		img.Files = append(img.Files, imageFile{Path: "usr/bin/cudaclient-setuid", Source: client, Mode: 0o4755})
	}
	if dirs := c.unusualDirs(); len(dirs) > 0 {
		img.Env = append(img.Env, "LD_LIBRARY_PATH="+strings.Join(dirs, ":"))
	}
	return img, nil
}

// imageSkeleton is what every root file system has.
func imageSkeleton() []imageFile {
	return []imageFile{
		{Path: "bin", Link: "usr/bin"}, {Path: "sbin", Link: "usr/bin"},
		{Path: "lib", Link: "usr/lib"}, {Path: "lib64", Link: "usr/lib64"},
		{Path: "tmp/", Mode: 0o1777}, {Path: "usr/local/", Mode: 0o755}, {Path: "run/", Mode: 0o755},
		{Path: "etc/passwd", Text: "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n", Mode: 0o644},
		{Path: "etc/group", Text: "root:x:0:\nnogroup:x:65534:\n", Mode: 0o644},
	}
}

// importImages loads the images into containerd, the product's as well if it is installed.
func (c *Cluster) importImages(ctx context.Context) error {
	names := []string{"pause", "cudaclient", "wants-all", "bare", "hostile"}
	if c.opts.Installed {
		names = append(names, productImages()...)
	}
	if c.opts.Installed && c.opts.StockScheduler {
		names = append(names, VolcanoScheduler)
	}
	for _, name := range names {
		if _, err := c.ctr(ctx, "images", "import", "--local", c.layout.image(name)); err != nil {
			return fmt.Errorf("import image %s: %w\n%s", name, err, logTail(c.layout.log(Containerd)))
		}
	}
	return nil
}

// runtimeName is an image's name as the runtime writes it out in full: what pods call by its short
// name must be stored under the long one.
func runtimeName(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return ref // the import will say what is wrong with it
	}
	return named.String()
}
