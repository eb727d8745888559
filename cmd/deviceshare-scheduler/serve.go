// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"

	"k8s.io/klog/v2"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	commonutil "volcano.sh/volcano/pkg/util"

	"deviceshare/endpoint"
	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/deviceshare/page"
)

// serveMetricsAndLedger serves what Volcano would at its metrics address, with who holds which
// devices beside it, and tells Volcano not to: it has no way to add a page to
// its server, and asks nobody for a token. The ledger is served at our own address
// too, if one is given.
func serveMetricsAndLedger(volcano *options.ServerOption, ours ownOptions, store *deviceshare.Store, access *endpoint.Access) error {
	ledger := map[string]http.Handler{page.Path: store.LedgerHandler()}
	if ours.debugAddress != "" {
		if err := servePages("--deviceshare-debug-address", ours.debugAddress, ledger, access); err != nil {
			return err
		}
	}
	if !volcano.EnableMetrics {
		return nil
	}
	pages := maps.Clone(ledger)
	pages["/metrics"] = commonutil.PromHandler()
	if volcano.EnablePprof {
		pages["/debug/pprof/"] = http.HandlerFunc(pprof.Index)
		pages["/debug/pprof/cmdline"] = http.HandlerFunc(pprof.Cmdline)
		pages["/debug/pprof/profile"] = http.HandlerFunc(pprof.Profile)
		pages["/debug/pprof/symbol"] = http.HandlerFunc(pprof.Symbol)
		pages["/debug/pprof/trace"] = http.HandlerFunc(pprof.Trace)
	}
	volcano.EnableMetrics, volcano.EnablePprof = false, false
	return servePages("--listen-address", volcano.ListenAddress, pages, access)
}

// servePages serves pages, to those who may read them, at an address that a flag gave.
func servePages(flag, address string, pages map[string]http.Handler, access *endpoint.Access) error {
	mux := http.NewServeMux()
	for path, page := range pages {
		mux.Handle(path, access.Guard(path, page))
	}
	server, err := endpoint.Listen(address, mux)
	if err != nil {
		return fmt.Errorf("serve as %s says: %w", flag, err)
	}
	go func() {
		if err := server.Serve(context.Background()); err != nil {
			klog.ErrorS(err, "Serving ended", "address", address)
		}
	}()
	return nil
}
