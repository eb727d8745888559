// SPDX-License-Identifier: Apache-2.0

package claimspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"deviceshare/sharing"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// mostMemory is the most memory that one device may be asked for: more is a typing error.
const mostMemory sharing.Bytes = 16 << 40

// Parameters is what ShareParameters says. A nil field is one that it does not name.
type Parameters struct {
	Memory *sharing.Memory
	Cores  *sharing.Percent
	Modes  []sharing.Mode
	Policy string
	// OneNUMA asks for devices of one NUMA node only.
	OneNUMA *bool
}

// parameterNames are the fields of ShareParameters beside apiVersion and kind, in the order in
// which people are told of them.
func parameterNames() []string {
	return []string{"memory", "memoryPercentage", "cores", "modes", "policy", "numa"}
}

// reader collects the mistakes of one claim or class.
type reader struct {
	mistakes []request.Mistake
}

func (r *reader) addMistake(path, format string, args ...any) {
	r.mistakes = append(r.mistakes, request.Mistake{Path: path, Message: fmt.Sprintf(format, args...)})
}

// ReadParameters reads the parameters of an opaque configuration of our driver. path is that of the
// configuration.
func ReadParameters(path string, text []byte) (Parameters, []request.Mistake) {
	r := &reader{}
	p := r.readParameters(path, text)
	if len(r.mistakes) > 0 {
		return Parameters{}, r.mistakes
	}
	return p, nil
}

func (r *reader) readParameters(path string, text []byte) (p Parameters) {
	path += ".opaque.parameters"
	given, ok := r.readObject(path, text)
	if !ok || !r.checkKind(path, given) {
		return Parameters{}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		r.readField(&p, path+"."+excerpt(name), name, given[name])
	}
	if given["memory"] != nil && given["memoryPercentage"] != nil {
		r.addMistake(path+".memoryPercentage", "given together with memory: give one of them")
	}
	return p
}

// readField reads one field of ShareParameters.
func (r *reader) readField(p *Parameters, path, name string, raw json.RawMessage) {
	switch name {
	case "apiVersion", "kind":
	case "memory":
		p.Memory = r.readAmount(path, raw)
	case "memoryPercentage":
		if n, ok := r.readPercent(path, raw, 1); ok {
			m := sharing.PercentMemory(n)
			p.Memory = &m
		}
	case "cores":
		if n, ok := r.readPercent(path, raw, 0); ok {
			p.Cores = &n
		}
	case "modes":
		p.Modes = r.readModes(path, raw)
	case "policy":
		p.Policy = r.readWord(path, raw, policy.Names()...)
	case "numa":
		if r.readWord(path, raw, wire.NUMASingle) != "" {
			one := true
			p.OneNUMA = &one
		}
	default:
		r.addMistake(path, "is not known: the fields are %s", strings.Join(parameterNames(), ", "))
	}
}

// readObject reads one JSON object whose fields are all there once, and nothing behind it.
func (r *reader) readObject(path string, text []byte) (map[string]json.RawMessage, bool) {
	if !json.Valid(text) || !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		r.addMistake(path, "is not an object")
		return nil, false
	}
	in, out := json.NewDecoder(bytes.NewReader(text)), map[string]json.RawMessage{}
	_, err := in.Token() // the brace
	for err == nil && in.More() {
		var key json.Token
		var raw json.RawMessage
		if key, err = in.Token(); err == nil {
			err = in.Decode(&raw)
		}
		name, _ := key.(string)
		if _, twice := out[name]; twice {
			r.addMistake(path+"."+excerpt(name), "is there twice")
		}
		out[name] = raw
	}
	if err != nil {
		r.addMistake(path, "cannot be read: %v", err)
	}
	return out, err == nil
}

// checkKind reports whether the fields are those of ShareParameters. It notes what is wrong with
// apiVersion and kind.
func (r *reader) checkKind(path string, given map[string]json.RawMessage) bool {
	version, kind := textOf(given["apiVersion"]), textOf(given["kind"])
	switch {
	case kind == wire.ClaimPlacementKind:
		r.addMistake(path+".kind", "%s is what the scheduler writes into a claim's status: write %s to ask for devices", kind, wire.ShareParametersKind)
		return false
	case version == "":
		r.addMistake(path+".apiVersion", "is missing: write apiVersion: %s", wire.ClaimVersion)
	case version != wire.ClaimVersion:
		r.addMistake(path+".apiVersion", "is %q: want %s", excerpt(version), wire.ClaimVersion)
	}
	switch kind {
	case wire.ShareParametersKind:
		return true
	case "":
		r.addMistake(path+".kind", "is missing: write kind: %s", wire.ShareParametersKind)
		return true
	}
	r.addMistake(path+".kind", "is %q: want %s", excerpt(kind), wire.ShareParametersKind)
	return false
}

// excerpt is a text of a person up to a length that can be shown.
func excerpt[T ~string | ~[]byte](text T) string {
	const longest = 60
	if len(text) > longest {
		return strings.ToValidUTF8(string(text[:longest]), "") + "..."
	}
	return strings.ToValidUTF8(string(text), "?")
}

// textOf is a JSON string, "" if it is none.
func textOf(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// readPercent reads a whole number of percent of one device.
func (r *reader) readPercent(path string, raw json.RawMessage, least int64) (sharing.Percent, bool) {
	var n int64
	if isNull(raw) || json.Unmarshal(raw, &n) != nil {
		r.addMistake(path, "is %s: want a whole number from %d to 100, without quotes", excerpt(raw), least)
		return 0, false
	}
	if n < least || n > 100 {
		r.addMistake(path, "%d is outside %d to 100: it is percent of one device", n, least)
		return 0, false
	}
	return sharing.Percent(n), true
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// readAmount reads an amount of memory as Kubernetes writes quantities: "10Gi", "512Mi", or a
// number of bytes.
func (r *reader) readAmount(path string, raw json.RawMessage) *sharing.Memory {
	text := textOf(raw)
	if text == "" {
		text = string(bytes.TrimSpace(raw))
	}
	amount, ok := parseQuantity(text)
	if !ok {
		r.addMistake(path, "%s is no amount of memory: want one such as 10Gi or 512Mi", excerpt(raw))
		return nil
	}
	return r.readMemory(path, text, amount)
}

// readMemory reads a number of bytes of one device, which is rounded up to a whole MiB. text is how
// it is written. Less than 1 MiB is a number without its unit: that of vgpu-memory is MiB.
func (r *reader) readMemory(path, text string, amount sharing.Bytes) *sharing.Memory {
	switch {
	case amount <= 0:
		r.addMistake(path, "%s is not more than 0: for the whole memory write memoryPercentage: 100 in the parameters", text)
	case amount < sharing.MiB && strings.Trim(text, "0123456789") == "":
		r.addMistake(path, "%s is less than 1Mi: a number alone is bytes, write %dMi for so many MiB", text, amount)
	case amount < sharing.MiB:
		r.addMistake(path, "%s is less than 1Mi", text)
	case amount > mostMemory:
		r.addMistake(path, "%s is more than any device has", text)
	default:
		m := sharing.AbsoluteMemory(sharing.MiBs(amount.WholeMiB()))
		return &m
	}
	return nil
}

// parseQuantity reads a quantity in bytes, rounded up. Of Kubernetes' grammar it knows no exponents
// and nothing smaller than a byte.
func parseQuantity(text string) (sharing.Bytes, bool) {
	number := strings.TrimRight(text, "kKMGTi")
	scale, known := map[string]int64{
		"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
	}[text[len(number):]]
	if !known || number == "" || len(number) > 30 || strings.Trim(number, "0123456789.") != "" {
		return 0, false
	}
	amount, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, false
	}
	amount.Mul(amount, new(big.Rat).SetInt64(scale))
	bytes, rest := new(big.Int).QuoRem(amount.Num(), amount.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		bytes.Add(bytes, big.NewInt(1))
	}
	if !bytes.IsInt64() {
		return sharing.MaxBytes, true
	}
	return sharing.Bytes(bytes.Int64()), true
}

func (r *reader) readModes(path string, raw json.RawMessage) (modes []sharing.Mode) {
	var names []string
	if json.Unmarshal(raw, &names) != nil || len(names) == 0 {
		r.addMistake(path, "is %s: want a list of modes in order of preference, such as [mig, hami-core]; leave it out for any", excerpt(raw))
		return nil
	}
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		mode, err := sharing.ParseMode(name)
		switch {
		case err != nil:
			r.addMistake(at, "%v", err)
		case slices.Contains(modes, mode):
			r.addMistake(at, "%s is there twice", mode)
		default:
			modes = append(modes, mode)
		}
	}
	return modes
}

// readWord reads one of some words, "" if it is none of them.
func (r *reader) readWord(path string, raw json.RawMessage, known ...string) string {
	if word := textOf(raw); slices.Contains(known, word) {
		return word
	}
	r.addMistake(path, "is %s: want %s", excerpt(raw), strings.Join(known, ", "))
	return ""
}
