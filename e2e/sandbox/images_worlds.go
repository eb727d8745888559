// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// otherLoader is a loader that reads no /etc/ld.so.preload, such as musl's: the host's, with
// another name in that one's place.
func otherLoader(l layout, c *collector) (imageFile, error) {
	return replaced(c, "ld-linux", l.bin("other-loader"), OtherLoader, "/etc/ld.so.preload", "/etc/ld.so.nothing")
}

// oldLibrary is a C library that is older than libvgpu.so needs: the host's, without a version that
// libvgpu.so asks for and the client does not.
func oldLibrary(l layout, c *collector) (imageFile, error) {
	return replaced(c, "libc.so.6", l.bin("old-libc"), OldLibraries+"/libc.so.6", "GLIBC_2.10\x00", "GLIBC_2.1-\x00")
}

// replaced is a file of the image with another text of the same length in one's place.
func replaced(c *collector, name, to, place, old, now string) (imageFile, error) {
	out := imageFile{Path: strings.TrimPrefix(place, "/"), Source: to, Mode: 0o755}
	for dest, source := range c.sources {
		if !strings.HasPrefix(filepath.Base(dest), name) {
			continue
		}
		text, err := readFile(source)
		if err != nil {
			return out, err
		}
		if !bytes.Contains(text, []byte(old)) {
			return out, fmt.Errorf("%s does not name %q", source, old)
		}
		return out, os.WriteFile(to, bytes.ReplaceAll(text, []byte(old), []byte(now)), 0o755)
	}
	return out, errors.New("there is no " + name)
}

// bareImage is the CUDA client as people who want small images pack it: its program and libraries,
// without a shell, users or a /tmp. It preloads a library by itself; only its name is special.
func bareImage(l layout) (image, error) {
	img := image{Name: runtimeName(ImageBare), Architecture: runtime.GOARCH, Env: []string{"PATH=/usr/bin"}}
	c := newCollector()
	if client := filepath.Join(l.repo, "e2e/fakegpu/build/cudaclient"); exists(client) {
		if err := c.add("usr/bin/cudaclient", client); err != nil {
			return img, fmt.Errorf("build image %s: %w", img.Name, err)
		}
	}
	for _, lib := range imageLibraries {
		if err := c.library(lib); err != nil {
			return img, fmt.Errorf("build image %s: %w", img.Name, err)
		}
	}
	files := c.files()
	kept := slices.IndexFunc(files, func(f imageFile) bool { return path.Base(f.Path) == "libgcc_s.so.1" })
	img.Files = append(files,
		imageFile{Path: "lib", Link: "usr/lib"}, imageFile{Path: "lib64", Link: "usr/lib64"},
		imageFile{Path: strings.TrimPrefix(PreloadedByImage, "/"), Source: files[kept].Source, Mode: 0o755},
		imageFile{Path: "etc/ld.so.preload", Mode: 0o644, Text: "# what this image wants everywhere\n/nowhere.so:" + PreloadedByImage})
	if dirs := c.unusualDirs(); len(dirs) > 0 {
		img.Env = append(img.Env, "LD_LIBRARY_PATH="+strings.Join(dirs, ":"))
	}
	return img, nil
}

// hostileImage is one whose own list of libraries to preload has no end.
func hostileImage(l layout) image {
	return image{Name: runtimeName(ImageHostile), Architecture: runtime.GOARCH, Entrypoint: []string{"/pause"}, Files: []imageFile{
		{Path: "pause", Source: l.bin("pause"), Mode: 0o755},
		{Path: "etc/ld.so.preload", Mode: 0o644, Text: strings.Repeat("/opt/a.so\n", 10_000)},
	}}
}
