// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// libraryDirs are searched for shared libraries, first hit wins. The first two are Debian's, where
// the libraries of a GPU driver are mounted in containers too.
var libraryDirs = [...]string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu",
	"/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/lib"}

// collector gathers programs and everything that the dynamic loader needs to start them.
type collector struct {
	sources map[string]string // path in the image -> file of the host
	dirs    map[string]bool   // directories of libraries in the image
}

func newCollector() *collector {
	return &collector{sources: map[string]string{}, dirs: map[string]bool{}}
}

// add takes a program or library and, through it, the libraries it names and its loader.
// libcuda.so.1 is left out: it is the driver's.
func (c *collector) add(dest, source string) error {
	if _, have := c.sources[dest]; have {
		return nil
	}
	c.sources[dest] = source
	f, err := elf.Open(source)
	if err != nil {
		return fmt.Errorf("read program %s: %w", source, err)
	}
	defer f.Close()
	if err := c.loader(f); err != nil {
		return err
	}
	libs, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read libraries of %s: %w", source, err)
	}
	for _, lib := range libs {
		if strings.HasPrefix(lib, "libcuda.so") || strings.HasPrefix(lib, "ld-linux") {
			continue
		}
		if err := c.library(lib); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return nil
}

// loader takes the dynamic loader that a program names, under exactly that name.
func (c *collector) loader(f *elf.File) error {
	s := f.Section(".interp")
	if s == nil {
		return nil
	}
	text, err := s.Data()
	if err != nil {
		return fmt.Errorf("read the loader's name: %w", err)
	}
	path := strings.TrimRight(string(text), "\x00")
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("find the loader: %w", err)
	}
	c.sources[imagePath(path)] = real
	return nil
}

// library takes a shared library by its soname.
func (c *collector) library(soname string) error {
	for _, dir := range libraryDirs {
		path := filepath.Join(dir, soname)
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		dest := imagePath(path)
		c.dirs["/"+filepath.Dir(dest)] = true
		return c.add(dest, real)
	}
	return fmt.Errorf("library %s: not found in %s", soname, strings.Join(libraryDirs[:], ", "))
}

// imagePath is the place of a host file in an image whose /bin, /lib and /lib64 are links into
// /usr.
func imagePath(path string) string {
	path = strings.TrimPrefix(filepath.Clean(path), "/")
	if strings.HasPrefix(path, "usr/") {
		return path
	}
	return "usr/" + path
}

// files are the collected files in a stable order.
func (c *collector) files() []imageFile {
	var out []imageFile
	for _, dest := range slices.Sorted(maps.Keys(c.sources)) {
		out = append(out, imageFile{Path: dest, Source: c.sources[dest], Mode: 0o755})
	}
	return out
}

// unusualDirs are the library directories to name in LD_LIBRARY_PATH: on a host that is laid out
// like Debian none, because its loader looks there by itself, elsewhere all and Debian's, where the
// driver's libraries appear.
func (c *collector) unusualDirs() []string {
	var dirs []string
	for dir := range c.dirs {
		if !strings.HasSuffix(dir, "-linux-gnu") {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	slices.Sort(dirs)
	return append(dirs, libraryDirs[0])
}

// readFile is the content of a file of the host.
func readFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}
