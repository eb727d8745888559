// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"deviceshare/sharing"
)

// NodeCordon is the annotation of a node that says which of its devices take no new pods. Written
// by people, with kubectl deviceshare cordon, drain and uncordon; read by our scheduler, removed by
// the uninstallation.
const NodeCordon = "volcano.sh/vgpu-cordon"

const cordonFormat = "cordons"

// What a cordon does, in the words of Kubernetes' taints of devices: new pods are kept off, and
// those on the device have to leave, too.
const (
	effectNoSchedule = "NoSchedule"
	effectNoExecute  = "NoExecute"
)

// LongestCordonText is how long the reason of a cordon may be, in bytes, and the name of who says
// so.
const LongestCordonText = 253

type cordonsText struct {
	Version int                   `json:"version"`
	Devices map[string]cordonText `json:"devices"`
}

type cordonText struct {
	Effect string `json:"effect,omitempty"` // NoSchedule if it is missing
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	Since  string `json:"since,omitempty"` // in UTC, to the second
	Until  string `json:"until,omitempty"`
}

// EncodeCordons writes cordons as JSON. It is an error if they hold what DecodeCordons refuses.
func EncodeCordons(c sharing.Cordons) (string, error) {
	out := cordonsText{Version: version, Devices: map[string]cordonText{}}
	for id, one := range c {
		text := cordonText{Effect: effectNoSchedule, Reason: one.Reason, By: one.By, Since: one.Since, Until: one.Until}
		if one.Drains {
			text.Effect = effectNoExecute
		}
		out.Devices[string(id)] = text
	}
	if _, err := cordonsIn(&out); err != nil {
		return "", err
	}
	return renderJSON(cordonFormat, out)
}

// DecodeCordons reads what EncodeCordons writes, and what people write like it. Errors are of type
// *Error, all of them joined.
func DecodeCordons(text string) (sharing.Cordons, error) {
	var in cordonsText
	if err := parseJSON(cordonFormat, text, &in); err != nil {
		return nil, err
	}
	return cordonsIn(&in)
}

// ReadCordons reads the cordons of a node from its annotations; none if there is no such
// annotation.
func ReadCordons(annotations map[string]string) (sharing.Cordons, error) {
	text, found := annotations[NodeCordon]
	if !found {
		return nil, nil
	}
	return DecodeCordons(text)
}

func cordonsIn(in *cordonsText) (sharing.Cordons, error) {
	var mistakes []error
	out := sharing.Cordons{}
	for _, id := range slices.Sorted(maps.Keys(in.Devices)) {
		path, text := "devices["+quoteExcerpt(id)+"]", in.Devices[id]
		mistake := func(field, why string) {
			mistakes = append(mistakes, &Error{cordonFormat, path + field, why})
		}
		if !validID(id) {
			mistake("", "is not the UUID of a device")
		}
		out[sharing.DeviceID(id)] = text.cordonIn(mistake)
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	return out, nil
}

// cordonIn reads one cordon. It tells what is wrong with its fields.
func (t *cordonText) cordonIn(mistake func(field, why string)) sharing.Cordon {
	if t.Effect != effectNoSchedule && t.Effect != effectNoExecute && t.Effect != "" {
		mistake(".effect", quoteExcerpt(t.Effect)+" is not known: want "+effectNoSchedule+" or "+effectNoExecute)
	}
	lineIn := func(field, text string) string {
		if !validText(text, LongestCordonText) {
			mistake(field, "is not one line of at most "+strconv.Itoa(LongestCordonText)+" bytes")
		}
		return text
	}
	timeIn := func(field, text string) string {
		if text != "" && !isTime(text) {
			mistake(field, quoteExcerpt(text)+" is no time such as 2026-01-31T15:04:05Z")
		}
		return text
	}
	return sharing.Cordon{
		Drains: t.Effect == effectNoExecute, Reason: lineIn(".reason", t.Reason), By: lineIn(".by", t.By),
		Since: timeIn(".since", t.Since), Until: timeIn(".until", t.Until),
	}
}

// isTime reports whether a text is a time to the second in UTC, as RFC 3339 has it.
func isTime(s string) bool {
	const form = "0000-00-00T00:00:00Z"
	if len(s) != len(form) {
		return false
	}
	for i := range len(form) {
		if isDigit := s[i] >= '0' && s[i] <= '9'; form[i] == '0' && !isDigit || form[i] != '0' && s[i] != form[i] {
			return false
		}
	}
	return s[5:7] <= "12" && s[8:10] <= "31" && s[11:13] <= "23" && s[14:16] <= "59" && s[17:19] <= "60"
}
