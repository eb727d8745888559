// SPDX-License-Identifier: Apache-2.0

// Command generate writes the rules and dashboards of the chart into a directory.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"deviceshare/manifests/monitoring"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate DIRECTORY")
		os.Exit(2)
	}
	if err := writeFiles(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// writeFiles writes every file below a directory.
func writeFiles(directory string) error {
	files, err := monitoring.Files()
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make the directory of %s: %w", name, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
