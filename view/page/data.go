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

func (s *snapshot) state() state {
	if s.taken.IsZero() {
		return state{Version: s.version}
	}
	return state{Version: s.version, Taken: s.taken.Unix()}
}

func (s *Server) overview(w http.ResponseWriter, _ *http.Request) {
	now := s.current()
	answer(w, struct {
		state
		// Stale is why the state may be old, Live whether it changes.
		Stale string `json:"stale,omitempty"`
		Live  bool   `json:"live"`
		view.Overview
	}{now.state(), s.source.Trouble(), s.source.Changed() != nil, now.overview})
}

func (s *Server) nodes(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	offset, limit, err := window(q, mostCards)
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
	now := s.current()
	cards, total := view.Cards(now.devices, f, offset, limit)
	answer(w, struct {
		state
		Total int         `json:"total"`
		Nodes []view.Card `json:"nodes"`
	}{now.state(), total, cards})
}

func (s *Server) waiting(w http.ResponseWriter, r *http.Request) {
	offset, _, err := window(r.URL.Query(), mostWhys)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	now := s.current()
	some := now.waiting(offset)
	answer(w, struct {
		state
		Total int            `json:"total"`
		Page  int            `json:"page"`
		Pods  []view.Waiting `json:"pods"`
	}{now.state(), some.total, mostWhys, some.list})
}

func (s *Server) past(w http.ResponseWriter, r *http.Request) {
	after, err := number(r.URL.Query(), "after", 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	samples := s.history.after(int64(after))
	s.mu.Unlock()
	answer(w, struct {
		Samples []Sample `json:"samples"`
	}{samples})
}

// window reads which part of a list is asked for.
func window(q url.Values, most int) (offset, limit int, err error) {
	if offset, err = number(q, "offset", 0); err != nil {
		return 0, 0, err
	}
	limit, err = number(q, "limit", most)
	return offset, min(limit, most), err
}

func number(q url.Values, name string, missing int) (int, error) {
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

// answer writes JSON. What stands in it for <, > and & no browser takes for markup.
func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // who hangs up needs no answer
}
