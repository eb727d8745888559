// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"path/filepath"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
)

// hookName is the program that keeps what an image preloads by itself. It lies beside libvgpu.so.
const hookName = "deviceshare-hook"

// installHook brings the hook to the host and says how the runtime runs it for a container. Without
// it a container would start without what its image preloads by itself, so it does not.
func (w *Writer) installHook(dir string) ([]modes.Hook, error) {
	from := filepath.Join(filepath.Dir(w.library), hookName)
	content, err := w.files.Read(from)
	if err == nil && len(content) == 0 {
		err = fmt.Errorf("%s is empty", from)
	}
	if err != nil {
		return nil, fmt.Errorf("the hook is missing, nothing would keep what the image preloads by itself: %w", err)
	}
	path := filepath.Join(w.root, "hook", hookName)
	if _, err := host.WriteIfChanged(w.files, path, content, 0o755, 0o755); err != nil {
		return nil, fmt.Errorf("bring the hook to the host: %w", err)
	}
	return []modes.Hook{{Path: path, Args: []string{
		"merge-preload", "--library=" + libraryInside, "--file=" + filepath.Join(dir, preloadName),
	}}}, nil
}
