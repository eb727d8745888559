// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"deviceshare/manifests/images/image"
)

// manifests are the chart and the plain manifest of a working copy, which name a version of their
// own, for a release with another.
type manifests struct {
	dir, version string
}

// substitution replaces a text that must be there.
type substitution struct {
	file string // below the chart
	old  *regexp.Regexp
	by   string
}

func (s substitution) applyTo(text string) (string, error) {
	if !s.old.MatchString(text) {
		return "", fmt.Errorf("%s has nothing like %q, where the version of the release belongs", s.file, s.old)
	}
	return s.old.ReplaceAllLiteralString(text, s.by), nil
}

func (m manifests) chartVersion() (string, error) {
	text, err := os.ReadFile(filepath.Join(m.dir, "chart/Chart.yaml"))
	if err != nil {
		return "", fmt.Errorf("read the chart: %w", err)
	}
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(text, &chart); err != nil {
		return "", fmt.Errorf("read the chart: %w", err)
	}
	if err := checkVersion(chart.AppVersion); err != nil {
		return "", fmt.Errorf("read the chart: appVersion: %w", err)
	}
	return chart.AppVersion, nil
}

// packChart is the chart as `helm package` packs it.
func (m manifests) packChart() ([]byte, error) {
	current, err := m.chartVersion()
	if err != nil {
		return nil, err
	}
	files, err := image.Tree(filepath.Join(m.dir, "chart"))
	if err != nil {
		return nil, err
	}
	changes := []substitution{
		{"Chart.yaml", regexp.MustCompile(`(?m)^version: .*$`), "version: " + strings.TrimPrefix(m.version, "v")},
		{"Chart.yaml", regexp.MustCompile(`(?m)^appVersion: .*$`), "appVersion: " + m.version},
		{"values.yaml", regexp.MustCompile(`(?m)^  tag: ` + regexp.QuoteMeta(current) + `$`), "  tag: " + m.version},
	}
	for i := range files {
		for _, c := range changes {
			if files[i].Path != c.file {
				continue
			}
			if files[i], err = substituteFile(files[i], c); err != nil {
				return nil, fmt.Errorf("package the chart: %w", err)
			}
		}
	}
	for i := range files {
		files[i].Path = "deviceshare/" + files[i].Path
	}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if err := image.WriteTar(zip, files); err != nil {
		return nil, fmt.Errorf("package the chart: %w", err)
	}
	if err := zip.Close(); err != nil {
		return nil, fmt.Errorf("package the chart: %w", err)
	}
	return out.Bytes(), nil
}

// substituteFile makes a file with a text of the one it was.
func substituteFile(f image.File, c substitution) (image.File, error) {
	if f.Source != "" {
		data, err := os.ReadFile(f.Source)
		if err != nil {
			return f, err
		}
		f.Text, f.Source = string(data), ""
	}
	text, err := c.applyTo(f.Text)
	f.Text = text
	return f, err
}

// renderPlain is the plain manifest with the images of this version.
func (m manifests) renderPlain() ([]byte, error) {
	current, err := m.chartVersion()
	if err != nil {
		return nil, err
	}
	const file = "install/deviceshare.yaml"
	text, err := os.ReadFile(filepath.Join(m.dir, file))
	if err != nil {
		return nil, fmt.Errorf("read the plain manifest: %w", err)
	}
	out := string(text)
	for _, name := range []string{"scheduler", "webhook", "device-plugin"} {
		ref := "image: deviceshare/" + name + ":"
		c := substitution{file, regexp.MustCompile(regexp.QuoteMeta(ref+current) + `\b`), ref + m.version}
		if out, err = c.applyTo(out); err != nil {
			return nil, fmt.Errorf("write the plain manifest: %w", err)
		}
	}
	return []byte(out), nil
}
