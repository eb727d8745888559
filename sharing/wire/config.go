// SPDX-License-Identifier: Apache-2.0

package wire

// NodeConfig is the annotation of a node that says which configuration its device
// plugin has in force. Written by our device plugin, read by our scheduler to
// count the nodes that do not agree with it, and by people.
const NodeConfig = "volcano.sh/vgpu-config"

const configFormat = "node configuration"

// ConfigVersions identifies a configuration by its content: two processes that
// show the same hash go by the same settings. A hash is empty where its writer
// does not know.
type ConfigVersions struct {
	// Device is of the cluster-wide settings, Node of the settings of nodes.
	Device, Node string
	// Geometry is of the partition geometries alone, a part of Device.
	Geometry string
}

type configText struct {
	Version  int    `json:"version"`
	Device   string `json:"device,omitempty"`
	Node     string `json:"node,omitempty"`
	Geometry string `json:"geometry,omitempty"`
}

// EncodeConfig writes the versions as JSON. It is an error if they hold what
// DecodeConfig refuses.
func EncodeConfig(v ConfigVersions) (string, error) {
	out := configText{Version: version, Device: v.Device, Node: v.Node, Geometry: v.Geometry}
	if _, err := configIn(&out); err != nil {
		return "", err
	}
	return renderJSON(configFormat, out)
}

// DecodeConfig reads what EncodeConfig writes. Errors are of type *Error.
func DecodeConfig(text string) (ConfigVersions, error) {
	var in configText
	if err := parseJSON(configFormat, text, &in); err != nil {
		return ConfigVersions{}, err
	}
	return configIn(&in)
}

func configIn(in *configText) (ConfigVersions, error) {
	f := &firstError{text: configFormat}
	for _, field := range []struct{ path, hash string }{{"device", in.Device}, {"node", in.Node}, {"geometry", in.Geometry}} {
		if !validText(field.hash, longestName) {
			f.failf(field.path, "is not a hash")
		}
	}
	if f.err != nil {
		return ConfigVersions{}, f.asError()
	}
	return ConfigVersions{Device: in.Device, Node: in.Node, Geometry: in.Geometry}, nil
}
