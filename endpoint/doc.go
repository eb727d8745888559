// SPDX-License-Identifier: Apache-2.0

// Package endpoint serves the pages of a program that name pods of tenants, to those only who may
// read them: metrics, the scheduler's ledger, profiles. A request needs a bearer token. The API
// server says whose token it is (TokenReview) and whether that user may get the page's path
// (SubjectAccessReview), as for the endpoints of Kubernetes' own components. Whatever cannot be
// found out is refused.
//
// Pages are served over HTTPS only, so that nobody on the pod network reads a token. The
// certificate is made at the start and is signed by nobody: clients do not check it. Health is
// served at the same address to everybody, and says nothing about tenants.
//
// Callers are not trusted. What is remembered of tokens, how many requests are answered at once
// and how often the API server is asked are bounded; see docs/adr/0025-who-reads-the-endpoints.md,
// also for why k8s.io/apiserver's packages for this are not used.
package endpoint
