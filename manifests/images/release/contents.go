// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"deviceshare/manifests/images/product"
)

// inventory collects packages and which image contains which.
type inventory struct {
	packages map[common.ElementID]*spdx.Package
	contains map[[2]common.ElementID]bool
}

// spdxDocument is an SPDX document that lists what the images are made of: the Go modules that the
// programs name themselves, and the Debian packages in the base of the device plugin.
func spdxDocument(b product.Builder, written []product.Written, created time.Time) ([]byte, error) {
	inv := inventory{packages: map[common.ElementID]*spdx.Package{}, contains: map[[2]common.ElementID]bool{}}
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: "deviceshare-" + b.Version, DocumentNamespace: "https://spdx.org/spdxdocs/deviceshare-" + b.Version + "-" + b.Revision,
		CreationInfo: &spdx.CreationInfo{Created: created.UTC().Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "deviceshare-make-release"}}},
	}
	for _, w := range written {
		id := elementID("Image", w.Product.ID())
		inv.packages[id] = &spdx.Package{PackageName: w.Name, PackageSPDXIdentifier: id, PackageVersion: w.Product.Tag(b.Version), PrimaryPackagePurpose: "CONTAINER",
			PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: w.Digest.Hex}},
			PackageDownloadLocation: "NOASSERTION",
			PackageLicenseConcluded: "NOASSERTION",
			PackageLicenseDeclared:  "Apache-2.0",
			PackageCopyrightText:    "NOASSERTION",
		}
		document.Relationships = append(document.Relationships, newRelationship("DOCUMENT", "DESCRIBES", id))
		for arch := range w.Sizes {
			if err := inv.addProgram(id, b.ProgramFile(arch, w.Product)); err != nil {
				return nil, err
			}
			if !w.Product.HasBase() {
				continue
			}
			for _, hook := range b.HookFiles(arch, w.Product) {
				if err := inv.addProgram(id, hook); err != nil {
					return nil, err
				}
			}
			if err := inv.addDebian(id, filepath.Join(b.BaseDir(arch), "var/lib/dpkg/status.d")); err != nil {
				return nil, err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(inv.packages)) {
		document.Packages = append(document.Packages, inv.packages[id])
	}
	pairs := slices.SortedFunc(maps.Keys(inv.contains), func(a, b [2]common.ElementID) int { return slices.Compare(a[:], b[:]) })
	for _, pair := range pairs {
		document.Relationships = append(document.Relationships, newRelationship(pair[0], "CONTAINS", pair[1]))
	}
	var out bytes.Buffer
	if err := spdxjson.Write(document, &out, spdxjson.Indent(" "), spdxjson.EscapeHTML(false)); err != nil {
		return nil, fmt.Errorf("write the list of contents: %w", err)
	}
	return out.Bytes(), nil
}

// addProgram adds the modules that a Go program was built of, and the standard library.
func (inv inventory) addProgram(within common.ElementID, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("list the modules of %s: %w", program, err)
	}
	inv.addPackage(within, "Go", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		inv.addPackage(within, "Go", m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	return nil
}

// addDebian adds the packages of a directory with one control file each.
func (inv inventory) addDebian(within common.ElementID, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list the Debian packages: %w", err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("list the Debian packages: %w", err)
		}
		name, version, arch := fieldOf(string(text), "Package"), fieldOf(string(text), "Version"), fieldOf(string(text), "Architecture")
		if name == "" || version == "" || arch == "" {
			return fmt.Errorf("list the Debian packages: %s lacks a name, a version or an architecture", filepath.Join(dir, e.Name()))
		}
		// In a package URL a plus sign is escaped.
		inv.addPackage(within, "Debian", name, version, "pkg:deb/debian/"+escapeURL(name)+"@"+escapeURL(version)+"?arch="+arch)
	}
	return nil
}

func escapeURL(text string) string {
	return strings.NewReplacer("+", "%2B", "~", "%7E", ":", "%3A").Replace(text)
}

// fieldOf is the value of a field of a Debian control file, "" if it is not there.
func fieldOf(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// addPackage adds a package, once for every package URL, and that an image contains it.
func (inv inventory) addPackage(within common.ElementID, kind, name, version, url string) {
	id := elementID(kind, strings.TrimPrefix(url, "pkg:"))
	inv.contains[[2]common.ElementID{within, id}] = true
	inv.packages[id] = &spdx.Package{PackageName: name, PackageSPDXIdentifier: id, PackageVersion: version,
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "NOASSERTION",
		PackageCopyrightText:      "NOASSERTION",
		PackageExternalReferences: []*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: url}},
	}
}

var notInIdentifiers = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func elementID(kind, name string) common.ElementID {
	return common.ElementID(kind + "-" + notInIdentifiers.ReplaceAllString(name, "-"))
}

func newRelationship(a common.ElementID, kind string, b common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{RefA: common.DocElementID{ElementRefID: a}, Relationship: kind, RefB: common.DocElementID{ElementRefID: b}}
}
