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
	repo, out, arch, version, fips string
}

func (o *options) addFlags(c *cobra.Command, out string) {
	c.Flags().StringVar(&o.repo, "repo", ".", "root of the working copy")
	c.Flags().StringVar(&o.out, "out", out, "directory for what is built, below the root unless absolute")
	c.Flags().StringVar(&o.arch, "arch", "amd64,arm64", "architectures; after the first, those that this machine has no C compiler or Debian packages for are left out")
	c.Flags().StringVar(&o.version, "version", "v0.1.0", "tag of the images, as the chart names it")
	c.Flags().StringVar(&o.fips, "fips", "", "build the images again with this version of Go's FIPS 140-3 module, such as v1.0.0; their tags end in -fips")
}

// newBuilder makes the builder of the working copy that the flags name.
func (o *options) newBuilder(ctx context.Context) (product.Builder, error) {
	platforms, err := product.ParsePlatforms(o.arch)
	if err != nil {
		return product.Builder{}, fmt.Errorf("--arch: %w", err)
	}
	if o.fips != "" {
		if err := product.CheckFIPS(o.fips); err != nil {
			return product.Builder{}, fmt.Errorf("--fips: %w", err)
		}
	}
	repo, err := filepath.Abs(o.repo)
	if err != nil {
		return product.Builder{}, fmt.Errorf("--repo: %w", err)
	}
	if !filepath.IsAbs(o.out) {
		o.out = filepath.Join(repo, o.out)
	}
	return product.Builder{Repo: repo, Work: filepath.Join(repo, ".sandbox/images/work"), Platforms: platforms, Version: o.version, FIPS: o.fips,
		Revision: gitRevision(ctx, repo), Progress: func(line string) { fmt.Println(line) }}, nil
}

// gitRevision is the commit of a working copy, with a mark where it has changes, or "unknown"
// outside of git.
func gitRevision(ctx context.Context, repo string) string {
	revision, err := runGit(ctx, repo, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
	if err != nil {
		return "unknown"
	}
	return revision
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
	var r release.Options
	var key string
	c := &cobra.Command{
		Use: "release", Short: "Write images, the plugin of kubectl, chart, plain manifest, list of contents and checksums of one version", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := o.newBuilder(c.Context())
			if err != nil {
				return err
			}
			// An empty path is a mistake too, such as a variable that is not set: it must not
			// leave the release unsigned.
			if c.Flags().Changed("sign-key") {
				if r.Seal, err = newSeal(c.Context(), b.Repo, key); err != nil {
					return fmt.Errorf("--sign-key: %w", err)
				}
			}
			if r.Created, err = commitTime(c.Context(), b.Repo); err != nil {
				return err
			}
			b.IsRelease = true
			names, err := release.Make(c.Context(), b, o.out, r)
			for _, name := range names {
				fmt.Println(filepath.Join(o.out, name))
			}
			return err
		},
	}
	o.addFlags(c, "dist")
	c.Flags().StringVar(&key, "sign-key", "", "private key, ECDSA P-256 or Ed25519 in PEM, that signs the checksums and a provenance")
	c.Flags().StringVar(&r.Downloads, "downloads", "", "address below which people will find the files, for the manifest of kubectl's plugin manager krew")
	_ = c.MarkFlagRequired("version")
	return c
}

// newSeal reads the key that signs a release, and the state of the working copy, for which it
// vouches.
func newSeal(ctx context.Context, repo, key string) (*release.Seal, error) {
	k, err := release.ReadKey(key)
	if err != nil {
		return nil, err
	}
	commit, err := runGit(ctx, repo, "rev-parse", "HEAD")
	if err != nil {
		return nil, fmt.Errorf("read the commit for the provenance: %w", err)
	}
	// A file that git does not know is compiled like any other.
	changes, err := runGit(ctx, repo, "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return nil, fmt.Errorf("read the changes for the provenance: %w", err)
	}
	return &release.Seal{Key: k, Source: release.Source{Commit: commit, IsDirty: changes != ""}}, nil
}

func runGit(ctx context.Context, repo string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = repo
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s in %s: %w", strings.Join(args, " "), repo, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// commitTime is the time of a release: that of SOURCE_DATE_EPOCH (reproducible-builds.org), else
// that of the commit.
func commitTime(ctx context.Context, repo string) (time.Time, error) {
	text, from := os.Getenv("SOURCE_DATE_EPOCH"), "SOURCE_DATE_EPOCH"
	if text == "" {
		var err error
		if text, err = runGit(ctx, repo, "log", "-1", "--format=%ct"); err != nil {
			return time.Time{}, fmt.Errorf("read the time of the commit: %w (outside of git set SOURCE_DATE_EPOCH, in seconds since 1970)", err)
		}
		from = "the time of the commit"
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
