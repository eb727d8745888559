// SPDX-License-Identifier: Apache-2.0

package limitsnode

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"

	"deviceshare/sharing/nodeapi/hostnode"
)

// libraryFiles are the files of a library directory, by their paths in it.
func libraryFiles() []string {
	return []string{"libvgpu.so", filepath.Join(standInDir, "libcuda.so.1"), filepath.Join(standInDir, "libnvidia-ml.so.1")}
}

// InstallLibrary copies libvgpu.so, and the same under the names of the driver's libraries, from
// the directory of an image to that of the host. Each file is replaced in one step: whoever has the
// old one mapped keeps it, and nobody sees half a file. A copy that has the content already stays.
// Nothing is written unless the image has every file. It may be repeated, also after it was killed
// at any point.
func InstallLibrary(files hostnode.Files, from, to string) error {
	contents := map[string][]byte{}
	for _, name := range libraryFiles() {
		content, err := files.Read(filepath.Join(from, name))
		if err != nil {
			return fmt.Errorf("install the library in %s: the image is incomplete: %w", to, err)
		}
		if len(content) == 0 {
			return fmt.Errorf("install the library in %s: the image is broken: %s is empty", to, filepath.Join(from, name))
		}
		contents[name] = content
	}
	for _, name := range libraryFiles() {
		if err := installFile(files, filepath.Join(to, name), contents[name]); err != nil {
			return fmt.Errorf("install the library in %s: %w", to, err)
		}
	}
	return nil
}

// installFile writes one file, reads it back, and removes what an earlier call that was killed left
// beside it.
func installFile(files hostnode.Files, path string, content []byte) error {
	if _, err := hostnode.WriteIfChanged(files, path, content, 0o644, 0o755); err != nil {
		return err
	}
	have, err := files.Read(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, content) {
		return fmt.Errorf("%s does not hold what was written: look at the disk, or for another writer", path)
	}
	names, err := files.List(filepath.Dir(path))
	if err != nil {
		return err
	}
	for _, left := range slices.DeleteFunc(names, func(name string) bool {
		of, ok := hostnode.UnfinishedOf(name)
		return !ok || of != filepath.Base(path)
	}) {
		if err := files.Remove(filepath.Join(filepath.Dir(path), left)); err != nil {
			return err
		}
	}
	return nil
}
