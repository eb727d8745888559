// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
)

// WriteIfChanged writes a file that containers do not see, unless it has this content
// already, and reports whether it wrote. A directory that is missing is made with
// dirMode; one that is there is left as it is.
func WriteIfChanged(files Files, path string, content []byte, mode, dirMode fs.FileMode) (changed bool, err error) {
	have, err := files.Read(path)
	if err == nil && bytes.Equal(have, content) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	err = files.Write(path, content, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err = files.MakeDir(filepath.Dir(path), dirMode); err == nil {
			err = files.Write(path, content, mode)
		}
	}
	return err == nil, err
}
