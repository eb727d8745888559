// SPDX-License-Identifier: Apache-2.0

package release

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"deviceshare/manifests/images/product"
)

// Source is the working copy that a release is built of.
type Source struct {
	Commit string // 40 hexadecimal digits
	// IsDirty: it has files that the commit has not, or has otherwise.
	IsDirty bool
}

// What a statement says it is. The types of in-toto and SLSA are addresses; ours have none that
// anybody could look up.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	payloadType   = "application/vnd.in-toto+json"
	buildType     = "urn:deviceshare:make-release:v1"
	builderID     = "urn:deviceshare:manifests:images"
)

// statement is an in-toto statement whose predicate is SLSA's provenance.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type provenance struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType string `json:"buildType"`
	// ExternalParameters are the variables of `make release`.
	ExternalParameters   map[string]string `json:"externalParameters"`
	InternalParameters   map[string]string `json:"internalParameters"`
	ResolvedDependencies []resource        `json:"resolvedDependencies"`
}

type runDetails struct {
	Builder struct {
		ID string `json:"id"`
	} `json:"builder"`
}

// resource is what in-toto calls a resource descriptor.
type resource struct {
	Name        string            `json:"name"`
	Digest      map[string]string `json:"digest"`
	Annotations map[string]bool   `json:"annotations,omitempty"`
}

// describeBuild returns the provenance of a release with these checksums, as SHA256SUMS has them.
// Subjects are the files, the file of checksums, which ties the statement to one release, and the
// images. goVersion is that of the compiler.
func describeBuild(b product.Builder, o Options, written []product.Written, sums []byte, goVersion string) statement {
	s := statement{Type: statementType, PredicateType: predicateType}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	s.Subject = append(s.Subject, resource{Name: sumsFile, Digest: map[string]string{"sha256": hashOf(sums)}})
	for _, w := range written {
		s.Subject = append(s.Subject, resource{Name: w.Name, Digest: map[string]string{w.Digest.Algorithm: w.Digest.Hex}})
	}
	s.Predicate.RunDetails.Builder.ID = builderID
	s.Predicate.BuildDefinition = buildDefinition{
		BuildType: buildType, ExternalParameters: formatArguments(b, o.Downloads, o.Created),
		InternalParameters: map[string]string{"goVersion": goVersion},
		ResolvedDependencies: []resource{{
			Name: "deviceshare", Digest: map[string]string{"gitCommit": o.Seal.Source.Commit}, Annotations: map[string]bool{"dirty": o.Seal.Source.IsDirty},
		}},
	}
	return s
}

// formatArguments returns the variables with which `make release` makes the same release.
func formatArguments(b product.Builder, downloads string, created time.Time) map[string]string {
	var architectures []string
	for _, p := range b.Platforms {
		architectures = append(architectures, p.Arch)
	}
	out := map[string]string{"VERSION": b.Version, "ARCH": strings.Join(architectures, ","), "SOURCE_DATE_EPOCH": strconv.FormatInt(created.Unix(), 10)}
	if downloads != "" {
		out["DOWNLOADS"] = downloads
	}
	if b.FIPS != "" {
		out["FIPS"] = b.FIPS
	}
	return out
}

// readGoVersion returns the version of the compiler that a program was built with.
func readGoVersion(program string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("read with which Go %s was built: %w", program, err)
	}
	return info.GoVersion, nil
}

// envelope is a DSSE envelope with one signature. Its key has no name here: nobody signs that.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	Sig string `json:"sig"`
}

// sealStatement returns a statement in a signed envelope, as one line. docs/install.md takes it
// apart by the order of its fields.
func sealStatement(key SigningKey, s statement) ([]byte, error) {
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write the provenance: %w", err)
	}
	sig, err := key.Sign(encodeForSigning(payload))
	if err != nil {
		return nil, fmt.Errorf("sign the provenance: %w", err)
	}
	text, err := json.Marshal(envelope{PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(payload),
		Signatures: []signature{{base64.StdEncoding.EncodeToString(sig)}}})
	if err != nil {
		return nil, fmt.Errorf("write the provenance: %w", err)
	}
	return append(text, '\n'), nil
}

// encodeForSigning returns what is signed of a payload: DSSE's pre-authentication encoding.
func encodeForSigning(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}
