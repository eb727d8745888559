// SPDX-License-Identifier: Apache-2.0

// Package modes is the vocabulary of the node half: what a container is
// entitled to (Claim), what it needs inside (Injection), and the interface every
// backend's node half implements (Preparer). It knows neither Kubernetes nor the
// driver, so that a backend can be tested with a temporary directory.
package modes
