// SPDX-License-Identifier: Apache-2.0

// Command images builds container images without Docker: those that users install, all that belongs
// to a release, and the workload images of the sandbox. It is a module of its own, so that none of
// its dependencies become the product's.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"deviceshare/manifests/images/image"
	"deviceshare/manifests/images/product"
	"deviceshare/manifests/images/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := &cobra.Command{Use: "images", Short: "Build container images without Docker", SilenceErrors: true, SilenceUsage: true}
	c.AddCommand(newBuild(), newRelease(), newPack())
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		stop()
		os.Exit(1)
	}
}

// options are the flags of what builds the product.
type options struct {
	repo, out, arch, version string
}

func (o *options) addFlags(c *cobra.Command, out string) {
	c.Flags().StringVar(&o.repo, "repo", ".", "root of the working copy")
	c.Flags().StringVar(&o.out, "out", out, "directory for what is built, below the root unless absolute")
	c.Flags().StringVar(&o.arch, "arch", "amd64,arm64", "architectures; after the first, those that this machine has no C compiler or Debian packages for are left out")
	c.Flags().StringVar(&o.version, "version", "v0.1.0", "tag of the images, as the chart names it")
}

// newBuilder makes the builder of the working copy that the flags name.
func (o *options) newBuilder(ctx context.Context) (product.Builder, error) {
	platforms, err := product.ParsePlatforms(o.arch)
	if err != nil {
		return product.Builder{}, fmt.Errorf("--arch: %w", err)
	}
	repo, err := filepath.Abs(o.repo)
	if err != nil {
		return product.Builder{}, fmt.Errorf("--repo: %w", err)
	}
	if !filepath.IsAbs(o.out) {
		o.out = filepath.Join(repo, o.out)
	}
	return product.Builder{Repo: repo, Work: filepath.Join(repo, ".sandbox/images/work"), Platforms: platforms, Version: o.version,
		Revision: gitRevision(ctx, repo), Progress: func(line string) { fmt.Println(line) }}, nil
}

// gitRevision is the commit of a working copy, with a mark where it has changes, or "unknown"
// outside of git.
func gitRevision(ctx context.Context, repo string) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
	cmd.Dir = repo
	out, err := cmd.Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func newBuild() *cobra.Command {
	var o options
	var archives bool
	c := &cobra.Command{
		Use: "build", Short: "Build the images of the product as OCI image layouts", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := o.newBuilder(c.Context())
			if err != nil {
				return err
			}
			written, err := b.WriteLayouts(c.Context(), o.out)
			for _, w := range written {
				fmt.Println(w)
				if archives {
					err = errors.Join(err, image.WriteArchive(w.Layout+".tar", w.Layout))
				}
			}
			return err
		},
	}
	o.addFlags(c, ".sandbox/images")
	c.Flags().BoolVar(&archives, "archives", false, "write each layout as a tar file beside it too, for `ctr images import`")
	return c
}

func newRelease() *cobra.Command {
	var o options
	var downloads string
	c := &cobra.Command{
		Use: "release", Short: "Write images, the plugin of kubectl, chart, plain manifest, list of contents and checksums of one version", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := o.newBuilder(c.Context())
			if err != nil {
				return err
			}
			created, err := commitTime(c.Context(), b.Repo)
			if err != nil {
				return err
			}
			b.IsRelease = true
			names, err := release.Make(c.Context(), b, o.out, downloads, created)
			for _, name := range names {
				fmt.Println(filepath.Join(o.out, name))
			}
			return err
		},
	}
	o.addFlags(c, "dist")
	c.Flags().StringVar(&downloads, "downloads", "", "address below which people will find the files, for the manifest of kubectl's plugin manager krew")
	_ = c.MarkFlagRequired("version")
	return c
}

// commitTime is the time of a release: that of SOURCE_DATE_EPOCH (reproducible-builds.org), else
// that of the commit.
func commitTime(ctx context.Context, repo string) (time.Time, error) {
	text, from := os.Getenv("SOURCE_DATE_EPOCH"), "SOURCE_DATE_EPOCH"
	if text == "" {
		cmd := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct")
		cmd.Dir = repo
		out, err := cmd.Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("read the time of the commit: %w (outside of git set SOURCE_DATE_EPOCH, in seconds since 1970)", err)
		}
		text, from = strings.TrimSpace(string(out)), "the time of the commit"
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read %s: %w", from, err)
	}
	return time.Unix(seconds, 0), nil
}

func newPack() *cobra.Command {
	return &cobra.Command{
		Use: "pack DESCRIPTION ARCHIVE", Short: "Build the image that a JSON file describes, as an archive of an OCI image layout", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("read the description of an image: %w", err)
			}
			var s image.Spec
			d := json.NewDecoder(strings.NewReader(string(text)))
			d.DisallowUnknownFields()
			if err := d.Decode(&s); err != nil {
				return fmt.Errorf("read the description of an image in %s: %w", args[0], err)
			}
			return image.Pack(args[1], s)
		},
	}
}
