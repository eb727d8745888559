// SPDX-License-Identifier: Apache-2.0

// Package monitoring holds what a Prometheus and a Grafana of the cluster are given: recording
// rules, alerts, and the panels of the dashboards. Files of the chart are made of it, by
//
//	go run ./manifests/monitoring/generate manifests/chart/files
//
// so that a query is written once, and tests have a list of all of them.
package monitoring

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// Recording is a query that Prometheus keeps the result of. Its name is level:metric:operation.
type Recording struct {
	Name, Query string
}

// Severity says how soon somebody should look.
type Severity string

// The severities, the most urgent first.
const (
	Critical Severity = "critical" // pods wait or go without limits until somebody acts
	Warning  Severity = "warning"  // within a working day
	Info     Severity = "info"     // worth knowing
)

// Alert is something that people should know of.
type Alert struct {
	Name     string
	Severity Severity
	// Query has a result while something is wrong, one series for each thing.
	Query string
	// For is how long it must have one, a duration of Prometheus.
	For string
	// Summary is what is wrong, Action what to do. Both are templates of Prometheus.
	Summary, Action string
}

// ruleFile is a file of rules, as Prometheus reads it.
type ruleFile struct {
	Groups []group `json:"groups"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// alertsPage is where people read what an alert means.
const alertsPage = "docs/metrics.md"

// Rules returns the file with all recording rules and alerts.
func Rules() ([]byte, error) {
	records, alerts := group{Name: "deviceshare.records"}, group{Name: "deviceshare.alerts"}
	for _, r := range Recordings() {
		records.Rules = append(records.Rules, rule{Record: r.Name, Expr: r.Query})
	}
	for _, a := range Alerts() {
		alerts.Rules = append(alerts.Rules, rule{
			Alert: a.Name, Expr: a.Query, For: a.For,
			Labels:      map[string]string{"severity": string(a.Severity)},
			Annotations: map[string]string{"summary": a.Summary, "description": a.Action, "documentation": alertsPage},
		})
	}
	return marshalRules("rules", ruleFile{Groups: []group{records, alerts}})
}

// marshalRules writes a file of rules with a comment on where it comes from.
func marshalRules(what string, file ruleFile) ([]byte, error) {
	text, err := yaml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("write the %s: %w", what, err)
	}
	const head = "# SPDX-License-Identifier: Apache-2.0\n# Made by manifests/monitoring/generate: edit the lists there.\n"
	return append([]byte(head), text...), nil
}
