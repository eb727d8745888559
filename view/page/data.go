// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"deviceshare/view"
)

// longestText bounds what a person may look for, in bytes: names have at most 253 and 63.
const longestText = 400

// state is what every answer says of itself.
type state struct {
	Version int64 `json:"version"`
	// Taken is when the state was read, in seconds since 1970; 0 if it is not known.
	Taken int64 `json:"taken"`
}

func (s *snapshot) versionInfo() state {
	if s.taken.IsZero() {
		return state{Version: s.version}
	}
	return state{Version: s.version, Taken: s.taken.Unix()}
}

func (s *Server) serveOverview(w http.ResponseWriter, _ *http.Request) {
	now := s.currentSnapshot()
	writeJSON(w, struct {
		state
		// Stale is why the state may be old, Live whether it changes.
		Stale string `json:"stale,omitempty"`
		Live  bool   `json:"live"`
		view.Overview
	}{now.versionInfo(), s.source.Trouble(), s.source.Changed() != nil, now.overview})
}

func (s *Server) serveNodes(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	offset, limit, err := parseWindow(q, mostCards)
	f := view.Filter{Text: q.Get("text"), Group: q.Get("group"), Mode: q.Get("mode"), Condition: view.Condition(q.Get("condition"))}
	switch f.Condition {
	case view.AnyCondition, view.InTrouble, view.HasRoom, view.HasIdle:
	default:
		err = fmt.Errorf("condition %q is not known: want trouble, room, idle or none", f.Condition)
	}
	if len(f.Text) > longestText {
		err = fmt.Errorf("the text has %d bytes, want at most %d", len(f.Text), longestText)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	now := s.currentSnapshot()
	cards, total := view.Cards(now.devices, f, offset, limit)
	writeJSON(w, struct {
		state
		Total int         `json:"total"`
		Nodes []view.Card `json:"nodes"`
	}{now.versionInfo(), total, cards})
}

func (s *Server) serveWaiting(w http.ResponseWriter, r *http.Request) {
	offset, _, err := parseWindow(r.URL.Query(), mostWhys)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	now := s.currentSnapshot()
	some := now.waitingPods(offset)
	writeJSON(w, struct {
		state
		Total int            `json:"total"`
		Page  int            `json:"page"`
		Pods  []view.Waiting `json:"pods"`
	}{now.versionInfo(), some.total, mostWhys, some.list})
}

func (s *Server) serveHistory(w http.ResponseWriter, r *http.Request) {
	after, err := parseNumber(r.URL.Query(), "after", 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	samples := s.history.samplesAfter(int64(after))
	s.mu.Unlock()
	writeJSON(w, struct {
		Samples []Sample `json:"samples"`
	}{samples})
}

// parseWindow reads which part of a list is asked for.
func parseWindow(q url.Values, most int) (offset, limit int, err error) {
	if offset, err = parseNumber(q, "offset", 0); err != nil {
		return 0, 0, err
	}
	limit, err = parseNumber(q, "limit", most)
	return offset, min(limit, most), err
}

func parseNumber(q url.Values, name string, missing int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return missing, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is %q: want a number that is not below zero", name, text)
	}
	return n, nil
}

// writeJSON writes JSON. What stands in it for <, > and & no browser takes for markup.
func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // who hangs up needs no answer
}
