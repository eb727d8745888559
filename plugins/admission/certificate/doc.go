// SPDX-License-Identifier: Apache-2.0

// Package certificate makes, renews and serves the webhook's certificate, so that an
// installation needs no certificate manager.
//
// There is no CA. The certificate is self-signed, and the caBundle of the webhook configurations
// holds the certificate itself. So no key exists that could sign another one, and one Secret has
// all there is. Rotation never breaks a client, because the next certificate is
// trusted before it is served:
//
//	age      0                     2/3          2/3 + 1 hour             1
//	old      |------- served -------|--- served ---|------ trusted ------|
//	next                            |--- trusted --|------ served ------- ...
//	                                ^ made,        ^ served, when a run finds that
//	                                  published      an hour has passed
//
// The old certificate stays trusted until it expires, for servers that have not read the next
// one. The hour counts from when the caBundle was last seen to change, which the Secret records.
// If no certificate can be served (at the first run, or when all have expired), the next one is
// served as soon as it is published.
//
// [State.Due], a pure function, decides what to do. [Installer] does it, in a Job. Servers read
// their files with [Mounted].
package certificate
