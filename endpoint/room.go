// SPDX-License-Identifier: Apache-2.0

package endpoint

import "sync"

// How many requests for guarded pages are answered at once, in all and for one address. A request
// that waits for the API server or for a slow reader counts.
const requestsAtOnce, requestsOfOneAddress = 32, 8

// requestLimiter bounds the requests that are answered at once. One address gets a part of it only,
// so that a stranger does not keep everybody else out. Safe for concurrent use.
type requestLimiter struct {
	all, each int

	mu     sync.Mutex
	inside int
	from   map[string]int
}

func newRequestLimiter(all, each int) *requestLimiter {
	return &requestLimiter{all: all, each: each, from: map[string]int{}}
}

// acquireSlot takes a place for an address, and reports whether there was one. The caller leaves
// it.
func (r *requestLimiter) acquireSlot(address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside >= r.all || r.from[address] >= r.each {
		return false
	}
	r.inside++
	r.from[address]++
	return true
}

func (r *requestLimiter) releaseSlot(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside--
	if r.from[address]--; r.from[address] == 0 {
		delete(r.from, address)
	}
}
