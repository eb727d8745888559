// SPDX-License-Identifier: Apache-2.0

// Package certificate makes, shares and rotates the webhook's own TLS material,
// so that an installation needs no certificate manager.
//
// There is one Secret, shared by all replicas: a list of authorities (CAs), and
// one serving certificate signed by one of them. Rotation never breaks a client,
// because trust is handed over in this order:
//
//	age of the CA   0                     2/3                          1
//	old CA          |---- signs ----------|-- signs --|-- trusted only-|
//	new CA                                |-- trusted-|---- signs ---------- ...
//	                                      ^           ^
//	                                      created     Handover later
//
// A new CA is published in the trust bundle first, and signs only when the
// bundle has had time (Policy.Handover) to reach every API server. The old one
// stays in the bundle until it expires, so a replica that still serves the old
// certificate is trusted too. The serving certificate is renewed at two thirds
// of its life.
//
// What to do at a moment is decided by [Due], which is pure; [Renew] does it;
// [Keeper] keeps the Secret, the published bundle and the served certificate in
// step.
package certificate
