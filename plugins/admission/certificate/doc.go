// SPDX-License-Identifier: Apache-2.0

// Package certificate makes, stores, renews and serves the webhook's TLS material,
// so that an installation needs no certificate manager.
//
// There are two Secrets. One holds the authorities (CAs) with their keys: only the
// [Installer] reads it, which runs for a moment in a Job with an account of its own.
// The other holds the serving certificate, which the servers mount. Rotation never
// breaks a client, because trust is handed over in this order:
//
//	age of the CA   0                     2/3                               1
//	old CA          |---- signs ----------|-- signs --|-- trusted --|
//	new CA                                |-- trusted-|---- signs --------------- ...
//	                                      ^           ^             ^
//	                                      created     Handover      Retire
//
// A new CA is published in the trust bundle first, and signs only when the bundle has
// had time (Policy.Handover) to reach every API server. The old one stays in the bundle
// until every server has had time (Policy.Retire) to read the certificate of the new
// one. The serving certificate is renewed at two thirds of its life.
//
// A Job may be killed before it has published an authority. One that is not known half a handover
// later is replaced.
//
// An authority whose key another version kept where servers could read it is Shared: it
// is replaced in the same order at the next run. An authority whose key is lost is
// Retired: it stays trusted for as long as a server may serve its certificate.
//
// What to do at a moment is decided by [Due], which is pure; [Renew] does it;
// [Installer] stores and publishes the result. In a cluster servers read their files
// with [Mounted]. A server outside of a cluster has no Job, and runs the Installer itself
// in a [Renewer].
package certificate
