// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"deviceshare/sharing/factory"
	"deviceshare/sharing/policy"
	"deviceshare/view"
	"deviceshare/view/capture"
	"deviceshare/view/simulate"
)

// options are the flags.
type options struct {
	streams genericiooptions.IOStreams

	add, namespace, schedulerConfig, schedulerName, output string
	policies, remove                                       []string
	oneByOne                                               bool
	trace, series                                          string
}

func rootCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams}
	c := &cobra.Command{
		Use: "kubectl-deviceshare-simulate FILE", Short: "Say what the scheduler would do with a captured cluster; - is the standard input",
		Version: version, SilenceUsage: true, SilenceErrors: true, Args: cobra.ExactArgs(1),
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl deviceshare simulate"},
		RunE:        func(_ *cobra.Command, args []string) error { return o.run(args[0]) },
	}
	c.SetIn(streams.In)
	c.SetOut(streams.Out)
	c.SetErr(streams.ErrOut)
	f := c.Flags()
	f.StringVar(&o.add, "add", "", "file of pods and pod groups that come into the cluster, in YAML or JSON; - is the standard input")
	f.BoolVar(&o.oneByOne, "one-by-one", false, "let each pod come when the one before has a place or waits, instead of all at once")
	f.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of added pods that name none")
	f.StringArrayVar(&o.remove, "remove", nil, "node that leaves the cluster; its pods are placed anew (repeat it for more)")
	f.StringSliceVar(&o.policies, "policy", nil, "policy of pods that name none: "+strings.Join(policy.Names(), ", ")+"; with --trace several, to compare them")
	f.StringVar(&o.schedulerConfig, "scheduler-config", "", "file with another volcano-scheduler.conf than the captured one")
	f.StringVar(&o.schedulerName, "scheduler-name", "volcano", "name of the scheduler whose pods are placed")
	f.StringVar(&o.trace, "trace", "", "CSV file of pods that come and go: show how much is promised over time, for each policy")
	f.StringVar(&o.series, "series", "", "write the numbers of --trace into this CSV file; - is the standard output")
	f.StringVarP(&o.output, "output", "o", "table", "table, wide, json or yaml")
	c.AddCommand(planCommand(o, c))
	return c
}

func (o *options) run(path string) error {
	if err := o.validate(path); err != nil {
		return err
	}
	state, err := readInput(o, path, "capture", capture.ReadAll)
	if err != nil {
		return err
	}
	q := simulate.Question{Backends: factory.New(), Remove: o.remove, OneByOne: o.oneByOne, SchedulerName: o.schedulerName}
	if o.schedulerConfig != "" {
		text, err := os.ReadFile(o.schedulerConfig)
		if err != nil {
			return fmt.Errorf("read the scheduler's configuration: %w", err)
		}
		q.Config = string(text)
	}
	if o.trace != "" {
		return o.replayTrace(state, &q)
	}
	if len(o.policies) > 0 {
		q.Policy = o.policies[0]
	}
	if o.add != "" {
		q.Add, err = readInput(o, o.add, "pods to add", func(r io.Reader) (simulate.Added, error) { return simulate.Decode(r, o.namespace) })
		if err != nil {
			return err
		}
	}
	w, err := simulate.Run(state, &q)
	if err != nil {
		return err
	}
	return o.writeAnswer(w, func(p view.Paint) string { return w.Text(p, o.output == "wide") })
}

// replayTrace lets the pods of a trace come and go, once for each policy.
func (o *options) replayTrace(state *capture.State, q *simulate.Question) error {
	pods, err := readInput(o, o.trace, "trace", simulate.ReadTrace)
	if err != nil {
		return err
	}
	policies := o.policies
	if len(policies) == 0 {
		policies = []string{""}
	}
	var all []view.Series
	for _, p := range policies {
		q.Policy = p
		s, err := simulate.Replay(state, q, pods)
		if err != nil {
			return err
		}
		all = append(all, *s)
	}
	if o.series != "" {
		if err := o.writeSeries(all); err != nil {
			return err
		}
		if o.series == "-" {
			return nil
		}
	}
	return o.writeAnswer(all, func(p view.Paint) string { return view.SeriesText(all, p) })
}

func (o *options) writeSeries(all []view.Series) error {
	if o.series == "-" {
		return view.WriteSeries(o.streams.Out, all)
	}
	f, err := os.Create(o.series)
	if err != nil {
		return fmt.Errorf("write the numbers: %w", err)
	}
	if err := errors.Join(view.WriteSeries(f, all), f.Close()); err != nil {
		return fmt.Errorf("write the numbers to %s: %w", o.series, err)
	}
	return nil
}

func (o *options) validate(path string) error {
	for _, p := range o.policies {
		if !slices.Contains(policy.Names(), p) {
			return fmt.Errorf("unknown policy %q: want one of %s", p, strings.Join(policy.Names(), ", "))
		}
	}
	switch o.output {
	case "table", "wide", "json", "yaml":
	default:
		return fmt.Errorf("unknown output %q: want table, wide, json or yaml", o.output)
	}
	switch {
	case o.trace == "" && len(o.policies) > 1:
		return errors.New("several policies are compared with --trace only: name one")
	case o.trace == "" && o.series != "":
		return errors.New("--series writes the numbers of --trace: give both")
	case o.trace != "" && (o.add != "" || len(o.remove) > 0 || o.oneByOne):
		return errors.New("--trace does not go with --add, --one-by-one and --remove")
	case path == "-" && (o.add == "-" || o.trace == "-"):
		return errors.New("one file only can be the standard input")
	}
	return nil
}

// readInput reads a file, or the standard input for "-".
func readInput[T any](o *options, path, what string, read func(io.Reader) (T, error)) (T, error) {
	var none T
	if path == "-" {
		return read(o.streams.In)
	}
	f, err := os.Open(path)
	if err != nil {
		return none, fmt.Errorf("read the %s: %w", what, err)
	}
	defer f.Close()
	out, err := read(f)
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

func (o *options) writeAnswer(value any, text func(view.Paint) string) error {
	var out []byte
	var err error
	switch o.output {
	case "json":
		out, err = json.MarshalIndent(value, "", "  ")
		out = append(out, '\n')
	case "yaml":
		out, err = yaml.Marshal(value)
	default:
		out = []byte(text(o.terminalPaint()))
	}
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if _, err := o.streams.Out.Write(out); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// terminalPaint colours only what a person reads at a terminal that has not asked for none.
func (o *options) terminalPaint() view.Paint {
	f, isFile := o.streams.Out.(*os.File)
	if !isFile || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return view.Paint{}
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return view.Paint{Colour: err == nil}
}
