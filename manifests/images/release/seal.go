// SPDX-License-Identifier: Apache-2.0

package release

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"

	"deviceshare/manifests/images/product"
)

const (
	// signatureFile is the signature of SHA256SUMS in base64, as `cosign verify-blob` reads it.
	signatureFile = sumsFile + ".sig"
	// provenanceFile has one DSSE envelope in its line, as in-toto bundles have.
	provenanceFile = "provenance.intoto.jsonl"
)

// Seal is who vouches for a release, and for which working copy.
type Seal struct {
	Key    SigningKey
	Source Source
}

// sealRelease signs the checksums in dir and writes the provenance beside them. It returns the
// names of both files. A provenance that nobody signs would prove nothing: without a key there is
// none.
func sealRelease(b product.Builder, dir string, o Options, written []product.Written) ([]string, error) {
	sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return nil, fmt.Errorf("sign the release: %w", err)
	}
	sig, err := o.Seal.Key.Sign(sums)
	if err != nil {
		return nil, fmt.Errorf("sign the checksums: %w", err)
	}
	goVersion, err := readGoVersion(b.ProgramFile(b.Platforms[0].Arch, written[0].Product))
	if err != nil {
		return nil, err
	}
	statement, err := sealStatement(o.Seal.Key, describeBuild(b, o, written, sums, goVersion))
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{signatureFile: []byte(base64.StdEncoding.EncodeToString(sig) + "\n"), provenanceFile: statement} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return nil, fmt.Errorf("sign the release: %w", err)
		}
	}
	return []string{signatureFile, provenanceFile}, nil
}
