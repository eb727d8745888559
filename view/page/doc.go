// SPDX-License-Identifier: Apache-2.0

// Package page serves what people see of a cluster as one page for browsers: nodes with their
// devices, pods that wait and why, queues, and the last hour. It is read only, and is told that the
// cluster has changed by server-sent events.
//
// What it shows is computed by package view, so that page and `kubectl deviceshare` say the same.
// The page asks for little at a time: sums over kinds of nodes first, then the nodes that are on
// the screen.
//
// Names of pods and nodes are those of strangers. They are sent as JSON and put into the page as
// text; a Content-Security-Policy has the browser refuse everything else. Who may read the page is
// decided by whoever serves it: see packages endpoint and desk.
package page
