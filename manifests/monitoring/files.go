// SPDX-License-Identifier: Apache-2.0

package monitoring

// Files returns the chart's files that are made of the lists here, by their names in the directory
// of its files.
func Files() (map[string][]byte, error) {
	rules, err := Rules()
	if err != nil {
		return nil, err
	}
	aliases, err := aliasRules()
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{"rules.yaml": rules, "aliases.yaml": aliases}
	for _, b := range Boards() {
		text, err := b.JSON()
		if err != nil {
			return nil, err
		}
		out["dashboards/"+b.Name+".json"] = text
	}
	return out, nil
}
