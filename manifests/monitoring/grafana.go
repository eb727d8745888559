// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"fmt"
)

// The schema of Grafana's dashboards, as far as it is used here.
type (
	dashboard struct {
		Title         string     `json:"title"`
		UID           string     `json:"uid"`
		SchemaVersion int        `json:"schemaVersion"`
		Tags          []string   `json:"tags"`
		Time          timeRange  `json:"time"`
		Refresh       string     `json:"refresh"`
		Templating    templating `json:"templating"`
		Panels        []graph    `json:"panels"`
	}
	timeRange struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	templating struct {
		List []variable `json:"list"`
	}
	variable struct {
		Name       string  `json:"name"`
		Label      string  `json:"label"`
		Type       string  `json:"type"`
		Query      string  `json:"query"`
		Datasource *source `json:"datasource,omitempty"`
		Refresh    int     `json:"refresh,omitempty"`
		Sort       int     `json:"sort,omitempty"`
		Multi      bool    `json:"multi,omitempty"`
		IncludeAll bool    `json:"includeAll,omitempty"`
		AllValue   string  `json:"allValue,omitempty"`
	}
	source struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	graph struct {
		ID          int         `json:"id"`
		Title       string      `json:"title"`
		Type        string      `json:"type"`
		Datasource  source      `json:"datasource"`
		GridPos     position    `json:"gridPos"`
		FieldConfig fieldConfig `json:"fieldConfig"`
		Targets     []target    `json:"targets"`
	}
	position struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	fieldConfig struct {
		Defaults  defaults `json:"defaults"`
		Overrides []string `json:"overrides"`
	}
	defaults struct {
		Unit string `json:"unit"`
		Min  int    `json:"min"`
	}
	target struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	}
)

// prometheus is the data source that people choose.
var prometheus = source{Type: "prometheus", UID: "${source}"}

// Grafana's grid has 24 columns.
const (
	panelWidth, panelHeight, columns = 12, 8, 2
	onTimeRange, byName              = 2, 1 // when a variable is read again, and how it is sorted
)

// JSON returns the dashboard as Grafana reads it.
func (b Board) JSON() ([]byte, error) {
	d := dashboard{
		Title: b.Title, UID: "deviceshare-" + b.Name, SchemaVersion: 39, Tags: []string{"gpu", "volcano"},
		Time: timeRange{From: "now-6h", To: "now"}, Refresh: "1m",
		Templating: templating{List: []variable{{Name: "source", Label: "Data source", Type: "datasource", Query: "prometheus"}}},
	}
	if b.Variable != "" {
		from := prometheus
		d.Templating.List = append(d.Templating.List, variable{
			Name: b.Variable, Label: b.Variable, Type: "query", Query: fmt.Sprintf("label_values(%s, %s)", b.Values, b.Variable),
			Datasource: &from, Refresh: onTimeRange, Sort: byName, Multi: true, IncludeAll: true, AllValue: ".+",
		})
	}
	for i, p := range b.Panels {
		g := graph{
			ID: i + 1, Title: p.Title, Type: "timeseries", Datasource: prometheus,
			GridPos:     position{H: panelHeight, W: panelWidth, X: i % columns * panelWidth, Y: i / columns * panelHeight},
			FieldConfig: fieldConfig{Defaults: defaults{Unit: p.Unit}, Overrides: []string{}},
		}
		for n, l := range p.Lines {
			g.Targets = append(g.Targets, target{RefID: string(rune('A' + n)), Expr: l.Query, LegendFormat: l.Legend})
		}
		d.Panels = append(d.Panels, g)
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write dashboard %s: %w", b.Name, err)
	}
	return append(text, '\n'), nil
}
