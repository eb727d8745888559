// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	volcano "volcano.sh/apis/pkg/client/clientset/versioned"

	"deviceshare/view/desk"
	"deviceshare/view/forward"
	"deviceshare/view/live"
	"deviceshare/view/page"
)

func (o *options) webCommand() *cobra.Command {
	var port int
	var local bool
	c := &cobra.Command{
		Use: "web", Short: "Show devices, waiting pods and queues as a page in your browser, until interrupted", Args: cobra.NoArgs,
		Long: "Show devices, waiting pods and queues as a page in your browser, until interrupted.\n" +
			"The page is that of the installation, which keeps the last hour. With --local this program serves it\n" +
			"with your own rights, and with --from it shows a capture. Only who knows the address that is printed sees it.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			shown, err := o.webPage(ctx, local)
			if err != nil {
				return err
			}
			d, err := desk.Listen(port, shown)
			if err != nil {
				return err
			}
			fmt.Fprintf(o.streams.Out, "open %s\n", d.URL())
			return d.Serve(ctx)
		},
	}
	c.Flags().IntVar(&port, "port", 0, "port of this machine to serve the browser on; 0 is any that is free")
	c.Flags().BoolVar(&local, "local", false, "serve the page from this machine, with your rights, instead of the one of the installation")
	return c
}

// webPage is the page of a capture, of this program, or of the installation.
func (o *options) webPage(ctx context.Context, local bool) (http.Handler, error) {
	if o.from != "" {
		state, err := o.readState(ctx)
		if err != nil {
			return nil, err
		}
		return pageWithEvents(page.New(page.Captured{Of: state})), nil
	}
	config, core, err := o.connectToCluster()
	if err != nil {
		return nil, err
	}
	if !local {
		door := forward.NewPageProxy(forward.New(config, core, o.installNamespace))
		return door, door.Check(ctx)
	}
	batch, err := volcano.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	f := live.New(core, batch, o.configNamespace)
	go f.Run(ctx)
	if err := f.Wait(ctx); err != nil {
		return nil, err
	}
	s := page.New(f)
	go s.Follow(ctx)
	return pageWithEvents(s), nil
}

// pageWithEvents is a page with its events.
func pageWithEvents(s *page.Server) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", s.Page())
	mux.Handle(page.EventsPath, s.Events())
	return mux
}
