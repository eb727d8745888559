// SPDX-License-Identifier: Apache-2.0

// Package forward reads the metrics of device plugins, and leads to the page, for a person at a
// desk, who reaches the API server and no pod. It goes through the API server as `kubectl
// port-forward` does.
//
// The API server's proxy of pods does not do: it takes the user's token off a request before it
// passes it on, and a user who has a certificate has no token at all. So the reader asks for a
// token of an account of the installation that may read metrics and the page and nothing else. It
// sends it to pods of the installation's namespace only: whoever can put a pod there has that
// account's rights already.
package forward
