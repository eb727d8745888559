// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"deviceshare/sharing"
)

// The names of our DRA driver in ResourceClaims and DeviceClasses.
const (
	// ClaimDriver is the driver of devices and of opaque configurations.
	ClaimDriver = "vgpu.volcano.sh"
	// ClaimVersion is the apiVersion of the parameters of our driver.
	ClaimVersion = "vgpu.volcano.sh/v1"
	// ShareParametersKind is what users ask with, ClaimPlacementKind what the scheduler writes
	// into status.allocation.
	ShareParametersKind = "ShareParameters"
	ClaimPlacementKind  = "Placement"
)

const claimFormat = "claim placement"

// mostClaimText is the most bytes that the API server accepts as one opaque configuration.
const mostClaimText = 10 << 10

// ClaimPlacement is what the scheduler writes into a claim that it gives devices.
type ClaimPlacement struct {
	// Placement has one container for each request of the claim, by its name.
	Placement sharing.Placement
	// Queue is the queue that is charged, "" if none is known.
	Queue string
	// Signature is that of a Signed whose owner is the claim, as EncodeSignature writes it; "" if
	// it is not signed. Signed.Placement is ClaimPlacement.SignedText.
	Signature string
}

// SignedText is the text of the placement that is signed: what EncodePlacement writes.
func (c *ClaimPlacement) SignedText() (string, error) { return EncodePlacement(c.Placement) }

type claimText struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Version    int             `json:"version"`
	Queue      string          `json:"queue,omitempty"`
	Placement  json.RawMessage `json:"placement"`
	Signature  json.RawMessage `json:"signature,omitempty"`
}

// EncodeClaimPlacement writes what a claim is given as the parameters of an opaque configuration.
func EncodeClaimPlacement(c ClaimPlacement) ([]byte, error) {
	text, err := c.SignedText()
	if err != nil {
		return nil, err
	}
	out := claimText{
		APIVersion: ClaimVersion, Kind: ClaimPlacementKind, Version: version, Queue: c.Queue, Placement: json.RawMessage(text),
	}
	if c.Signature != "" {
		out.Signature = json.RawMessage(c.Signature)
	}
	parameters, err := renderJSON(claimFormat, out)
	if err == nil && len(parameters) > mostClaimText {
		err = &Error{claimFormat, "", "would be " + strconv.Itoa(len(parameters)) + " bytes long, more than " + strconv.Itoa(mostClaimText)}
	}
	if err == nil {
		_, err = DecodeClaimPlacement([]byte(parameters))
	}
	if err != nil {
		return nil, err
	}
	return []byte(parameters), nil
}

// IsClaimPlacement reports whether parameters of our driver say that they are a placement.
func IsClaimPlacement(parameters []byte) bool {
	var in struct {
		Kind string `json:"kind"`
	}
	return json.Unmarshal(parameters, &in) == nil && in.Kind == ClaimPlacementKind
}

// DecodeClaimPlacement reads what EncodeClaimPlacement writes. Errors are of type *Error.
func DecodeClaimPlacement(parameters []byte) (ClaimPlacement, error) {
	var in claimText
	if err := parseJSON(claimFormat, string(parameters), &in); err != nil {
		return ClaimPlacement{}, err
	}
	f := &firstError{text: claimFormat}
	if in.APIVersion != ClaimVersion {
		f.failf("apiVersion", "%s is not %s", quoteExcerpt(in.APIVersion), ClaimVersion)
	}
	if in.Kind != ClaimPlacementKind {
		f.failf("kind", "%s is not %s", quoteExcerpt(in.Kind), ClaimPlacementKind)
	}
	if !validText(in.Queue, longestName) {
		f.failf("queue", "%s is not the name of a queue", quoteExcerpt(in.Queue))
	}
	if len(in.Placement) == 0 {
		f.failf("placement", "is missing")
	}
	if f.err != nil {
		return ClaimPlacement{}, f.asError()
	}
	p, err := placementOfClaim(string(in.Placement))
	if err != nil {
		return ClaimPlacement{}, err
	}
	out := ClaimPlacement{Placement: p, Queue: in.Queue}
	if len(in.Signature) > 0 {
		s, err := DecodeSignature(string(in.Signature))
		if err != nil {
			return ClaimPlacement{}, belowClaim("signature", err)
		}
		if out.Signature, err = EncodeSignature(s); err != nil {
			return ClaimPlacement{}, err
		}
	}
	return out, nil
}

// placementOfClaim reads a placement whose containers are the requests of a claim: they hold their
// shares as long as the claim is allocated.
func placementOfClaim(text string) (sharing.Placement, error) {
	p, err := DecodePlacement(text)
	if err != nil {
		return sharing.Placement{}, belowClaim("placement", err)
	}
	shares := 0
	for i := range p.Containers {
		shares += len(p.Containers[i].Shares)
		if kind := p.Containers[i].Kind; kind != sharing.App {
			return sharing.Placement{}, &Error{claimFormat, "placement.containers[" + strconv.Itoa(i) + "].kind", kind.String() + " is no request of a claim, want " + sharing.App.String()}
		}
	}
	if shares == 0 {
		return sharing.Placement{}, &Error{claimFormat, "placement.containers", "have no share"}
	}
	return p, nil
}

// belowClaim says in which field of a claim's placement another format has a mistake.
func belowClaim(field string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	at := field
	if e.At != "" {
		at += "." + e.At
	}
	return &Error{claimFormat, at, e.Why}
}

// ClaimDevice is the name of a share's device among the results of an allocation, which takes DNS
// labels: the UUID in lower case, and the place of a partition behind it. Nothing is read from it.
func ClaimDevice(s *sharing.Share) string {
	name := strings.ToLower(string(s.Device))
	if !s.Partition.IsZero() {
		name += "-" + strings.ToLower(s.Partition.Profile) + "-" + strconv.Itoa(s.Partition.Start)
	}
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
	if len(name) > 63 {
		name = name[:63]
	}
	return strings.Trim(name, "-")
}
