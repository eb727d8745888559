// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/distribution/reference"
)

// image is a container image of one layer.
type image struct {
	ref        string // name and tag, without a registry
	files      []imageFile
	entrypoint []string
	env        []string
}

// imageFile is one file of an image: a directory (path ends in "/"), a link, a text, or a copy of a host file.
type imageFile struct {
	path   string
	link   string
	text   string
	source string
	mode   int64
}

// descriptor points to a blob, as in the OCI image specification.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

// Media types of the OCI image specification v1.1.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// writeFile writes the image as a tar file in the OCI image layout. The same files give the same bytes.
func (im image) writeFile(name string) error {
	var layer bytes.Buffer
	if err := im.writeLayer(&layer); err != nil {
		return fmt.Errorf("build image %s: %w", im.ref, err)
	}
	var out bytes.Buffer
	if err := im.writeLayout(&out, layer.Bytes()); err != nil {
		return fmt.Errorf("build image %s: %w", im.ref, err)
	}
	if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("build image %s: %w", im.ref, err)
	}
	return nil
}

// writeLayer writes the root file system; parent directories are made as needed.
func (im image) writeLayer(w io.Writer) error {
	tw := tar.NewWriter(w)
	made := map[string]bool{}
	for _, f := range im.files {
		if err := writeParents(tw, made, f.path); err != nil {
			return err
		}
		data := []byte(f.text)
		if f.source != "" {
			var err error
			if data, err = readFile(f.source); err != nil {
				return err
			}
		}
		h := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(data)), Typeflag: tar.TypeReg}
		switch {
		case f.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		case strings.HasSuffix(f.path, "/"):
			h.Typeflag = tar.TypeDir
			made[strings.TrimSuffix(f.path, "/")] = true
		}
		if err := writeEntry(tw, h, data); err != nil {
			return err
		}
	}
	return tw.Close()
}

// writeParents writes the directories above a path that are not there yet.
func writeParents(tw *tar.Writer, made map[string]bool, name string) error {
	dir := path.Dir(strings.TrimSuffix(name, "/"))
	if dir == "." || made[dir] {
		return nil
	}
	if err := writeParents(tw, made, dir); err != nil {
		return err
	}
	made[dir] = true
	return writeEntry(tw, &tar.Header{Name: dir + "/", Mode: 0o755, Typeflag: tar.TypeDir}, nil)
}

func writeEntry(tw *tar.Writer, h *tar.Header, data []byte) error {
	if err := tw.WriteHeader(h); err != nil {
		return fmt.Errorf("write %s: %w", h.Name, err)
	}
	if _, err := tw.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", h.Name, err)
	}
	return nil
}

// writeLayout writes the image layout around a layer.
func (im image) writeLayout(w io.Writer, layer []byte) error {
	platform := map[string]string{"os": "linux", "architecture": runtime.GOARCH}
	layerDesc := describe(typeLayer, layer)
	config, err := json.Marshal(map[string]any{
		"os": platform["os"], "architecture": platform["architecture"],
		"config": map[string]any{"Entrypoint": im.entrypoint, "Env": im.env},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerDesc.Digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeManifest,
		"config": describe(typeConfig, config), "layers": []descriptor{layerDesc}})
	if err != nil {
		return err
	}
	manifestDesc := describe(typeManifest, manifest)
	manifestDesc.Platform = platform
	manifestDesc.Annotations = map[string]string{"io.containerd.image.name": runtimeName(im.ref)}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{manifestDesc}})
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	entries := []struct {
		name string
		data []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", index},
		{blobPath(manifest), manifest}, {blobPath(config), config}, {blobPath(layer), layer},
	}
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.data)), Typeflag: tar.TypeReg}
		if err := writeEntry(tw, h, e.data); err != nil {
			return err
		}
	}
	return tw.Close()
}

// describe makes the descriptor of a blob.
func describe(mediaType string, blob []byte) descriptor {
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest(blob), Size: int64(len(blob))}
}

func digest(blob []byte) string {
	sum := sha256.Sum256(blob)
	return hex.EncodeToString(sum[:])
}

func blobPath(blob []byte) string { return "blobs/sha256/" + digest(blob) }

// runtimeName is an image's name as the runtime writes it out in full: what pods call by its short name must be
// stored under the long one.
func runtimeName(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return ref // the import will say what is wrong with it
	}
	return named.String()
}
