// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"deviceshare/sharing/factory"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// watchPeriod is how often --watch reads the cluster.
const watchPeriod = 2 * time.Second

// options are what all commands have in common.
type options struct {
	streams         genericiooptions.IOStreams
	flags           *genericclioptions.ConfigFlags
	from, output    string
	configNamespace string
	// installNamespace is where the product is installed.
	installNamespace string
	watch            bool
}

// answer is what a command says: a value for programs and a text for people.
type answer struct {
	value any
	text  string
}

func (o *options) addFlags(f *pflag.FlagSet) {
	o.flags.AddFlags(f)
	f.StringVar(&o.from, "from", "", "read this capture instead of a cluster; - is the standard input")
	f.StringVarP(&o.output, "output", "o", "table", "table, wide, json or yaml")
	f.BoolVarP(&o.watch, "watch", "w", false, "show again whenever the answer is another one, until interrupted")
	f.StringVar(&o.configNamespace, "config-namespace", "kube-system", "namespace of the ConfigMap volcano-vgpu-device-config, which is looked for in volcano-system next")
	f.StringVar(&o.installNamespace, "install-namespace", "deviceshare-system", "namespace in which the product is installed, for top, capture and doctor")
}

// showAnswer reads the cluster, asks it, and writes the answer; with --watch again and again.
func (o *options) showAnswer(ctx context.Context, ask func(*view.Cluster) (answer, error)) error {
	if err := o.validate(); err != nil {
		return err
	}
	for last := ""; ; {
		text, err := o.answerOnce(ctx, ask)
		switch {
		case err != nil && (!o.watch || last == ""):
			return err
		case err != nil:
			fmt.Fprintf(o.streams.ErrOut, "%v; trying again\n", err)
		case text != last:
			if last != "" && o.output != "json" {
				text = watchSeparator(o.output) + text
			}
			if _, err := io.WriteString(o.streams.Out, text); err != nil {
				return fmt.Errorf("write the answer: %w", err)
			}
			last = strings.TrimPrefix(text, watchSeparator(o.output))
		}
		if !o.watch {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPeriod):
		}
	}
}

// tellPeople writes what is for people beside an answer that a program may read.
func (o *options) tellPeople(text string) { fmt.Fprintln(o.streams.ErrOut, text) }

// watchSeparator stands between two answers of --watch.
func watchSeparator(output string) string {
	if output == "yaml" {
		return "---\n"
	}
	return "\n"
}

func (o *options) validate() error {
	switch o.output {
	case "table", "wide", "json", "yaml":
	default:
		return fmt.Errorf("unknown output %q: want table, wide, json or yaml", o.output)
	}
	if o.watch && o.from != "" {
		return errors.New("--watch follows a cluster, and --from reads a file, which does not change: use one of them")
	}
	return nil
}

func (o *options) answerOnce(ctx context.Context, ask func(*view.Cluster) (answer, error)) (string, error) {
	state, err := o.readState(ctx)
	if err != nil {
		return "", err
	}
	a, err := ask(view.Read(state, factory.New()))
	if err != nil {
		return "", err
	}
	return o.renderAnswer(a)
}

func (o *options) renderAnswer(a answer) (string, error) {
	switch o.output {
	case "json":
		text, err := json.MarshalIndent(a.value, "", "  ")
		return string(text) + "\n", err
	case "yaml":
		text, err := yaml.Marshal(a.value)
		return string(text), err
	}
	return a.text, nil
}

// readState reads the capture of --from, or else the cluster.
func (o *options) readState(ctx context.Context) (*capture.State, error) {
	switch o.from {
	case "":
		return o.readCluster(ctx)
	case "-":
		return capture.Read(o.streams.In)
	}
	f, err := os.Open(o.from)
	if err != nil {
		return nil, fmt.Errorf("read the capture: %w", err)
	}
	defer f.Close()
	return capture.Read(f)
}

// captureTo writes the state into a file that did not exist, which only its owner may read.
func (o *options) captureTo(ctx context.Context, path string, hash bool) error {
	state, err := o.readFullState(ctx)
	if err != nil {
		return err
	}
	if hash {
		salt := make([]byte, 32)
		rand.Read(salt) // never fails
		state = state.Hash(salt)
	}
	if path == "-" {
		return capture.Write(o.streams.Out, state)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the capture: %w", err)
	}
	if err := errors.Join(capture.Write(f, state), f.Close()); err != nil {
		return fmt.Errorf("write the capture to %s: %w", path, err)
	}
	return nil
}

// targetNamespace is the one of -n or of the kubeconfig's context; "" for all.
func (o *options) targetNamespace(all bool) (string, error) {
	if all {
		return "", nil
	}
	if o.from != "" && (o.flags.Namespace == nil || *o.flags.Namespace == "") {
		return "default", nil // a capture has no context
	}
	namespace, _, err := o.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("read the namespace of the kubeconfig: %w", err)
	}
	return namespace, nil
}

// terminalPaint colours only what a person reads at a terminal that has not asked for none.
func (o *options) terminalPaint() view.Paint {
	asksForNone := os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	return view.Paint{Colour: !asksForNone && isTerminal(o.streams.Out)}
}

func isTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	if !isFile {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (o *options) completeNodes(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.completeNames(c, args, func(s *capture.State) (names []string) {
		for _, n := range s.Nodes {
			names = append(names, n.Name)
		}
		return names
	})
}

func (o *options) completePods(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	namespace, err := o.targetNamespace(false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return o.completeNames(c, args, func(s *capture.State) (names []string) {
		for _, p := range s.Pods {
			if p.Namespace == namespace {
				names = append(names, p.Name)
			}
		}
		return names
	})
}

func (o *options) completeNames(c *cobra.Command, args []string, names func(*capture.State) []string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	state, err := o.readState(c.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names(state), cobra.ShellCompDirectiveNoFileComp
}
