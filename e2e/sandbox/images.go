// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// imageTools are the host programs in the cudaclient image; those that the host lacks are left out.
var imageTools = [...]string{"sh", "cat", "sleep", "ls", "env", "true", "false", "id", "mkdir", "rm", "grep", "head"}

// imageLibraries are in the cudaclient image even if no program there names them: libvgpu.so and the fake driver do.
var imageLibraries = [...]string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"}

// buildImages writes the tar files of both images.
func buildImages(ctx context.Context, o Options, l layout) error {
	o.Progress("building images")
	if err := os.MkdirAll(filepath.Dir(l.image("pause")), 0o755); err != nil {
		return fmt.Errorf("build images: %w", err)
	}
	src := filepath.Join(l.repo, "e2e/sandbox/images/pause.c")
	if err := runQuiet(ctx, o, "pause", l.repo, "gcc", "-static", "-Os", "-s", "-o", l.bin("pause"), src); err != nil {
		return err
	}
	pause := image{ref: ImagePause, entrypoint: []string{"/pause"},
		files: []imageFile{{path: "pause", source: l.bin("pause"), mode: 0o755}}}
	if err := pause.writeFile(l.image("pause")); err != nil {
		return err
	}
	client, err := clientImage(l)
	if err != nil {
		return err
	}
	return client.writeFile(l.image("cudaclient"))
}

// clientImage is the workload of demo and tests: the CUDA client, a shell and a few tools, with the libraries of this
// host. It holds no libcuda.so: that comes with the device, as in a real CUDA image.
func clientImage(l layout) (image, error) {
	img := image{ref: ImageCUDAClient, entrypoint: nil, env: []string{"PATH=/usr/bin"}}
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
			return img, fmt.Errorf("build image %s: %w", img.ref, err)
		}
		if err := c.add(dest, real); err != nil {
			return img, fmt.Errorf("build image %s: %w", img.ref, err)
		}
	}
	for _, lib := range imageLibraries {
		if err := c.library(lib); err != nil && lib == "libc.so.6" {
			return img, fmt.Errorf("build image %s: %w", img.ref, err)
		}
	}
	img.files = append(imageSkeleton(), c.files()...)
	if dirs := c.unusualDirs(); len(dirs) > 0 {
		img.env = append(img.env, "LD_LIBRARY_PATH="+strings.Join(dirs, ":"))
	}
	return img, nil
}

// imageSkeleton is what every root file system has.
func imageSkeleton() []imageFile {
	return []imageFile{
		{path: "bin", link: "usr/bin"}, {path: "sbin", link: "usr/bin"},
		{path: "lib", link: "usr/lib"}, {path: "lib64", link: "usr/lib64"},
		{path: "tmp/", mode: 0o1777}, {path: "usr/local/", mode: 0o755}, {path: "run/", mode: 0o755},
		{path: "etc/passwd", text: "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n", mode: 0o644},
		{path: "etc/group", text: "root:x:0:\nnogroup:x:65534:\n", mode: 0o644},
	}
}

// importImages loads the images into containerd.
func importImages(ctx context.Context, l layout) error {
	for _, name := range []string{"pause", "cudaclient"} {
		cmd := exec.CommandContext(ctx, filepath.Join(l.runtime(), "ctr"), "--address", l.containerdSocket(),
			"--namespace", "k8s.io", "images", "import", l.image(name))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("import image %s: %w\n%s", name, err, lastLines(string(out)))
		}
	}
	return nil
}
