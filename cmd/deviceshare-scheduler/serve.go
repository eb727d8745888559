// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"k8s.io/klog/v2"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	commonutil "volcano.sh/volcano/pkg/util"

	"deviceshare/plugins/deviceshare"
)

// serve serves what Volcano would at its metrics address, with who holds which
// devices beside it, and tells Volcano not to: it has no way to add a page to
// its server. The ledger is served at our own address too, if one is given.
func serve(volcano *options.ServerOption, ours ownOptions, store *deviceshare.Store) error {
	ledger := http.NewServeMux()
	ledger.Handle(deviceshare.LedgerPath, store.LedgerHandler())
	if ours.debugAddress != "" {
		if err := listen("--deviceshare-debug-address", ours.debugAddress, ledger); err != nil {
			return err
		}
	}
	if !volcano.EnableMetrics {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", commonutil.PromHandler())
	mux.Handle(deviceshare.LedgerPath, ledger)
	if volcano.EnablePprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	volcano.EnableMetrics, volcano.EnablePprof = false, false
	return listen("--listen-address", volcano.ListenAddress, mux)
}

// listen serves a handler at an address that a flag gave.
func listen(flag, address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen as %s says: %w", flag, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 5 * time.Minute}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "Serving ended", "address", address)
		}
	}()
	return nil
}
