// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// etcdReady bounds how long the embedded etcd may take to elect itself; it needs well under a
// second when it is healthy.
const etcdReady = time.Minute

// etcdOptions says where the embedded etcd keeps its data and listens.
type etcdOptions struct {
	dir                  string
	clientPort, peerPort int
}

// runAPIServer starts etcd, then kube-apiserver against it, and returns kube-apiserver's exit
// status.
func runAPIServer(args []string) int {
	opts, rest, err := parseEtcdFlags(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane apiserver:", err)
		return 2
	}
	etcd, err := startEtcd(opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane apiserver:", err)
		return 1
	}
	defer etcd.Close()

	servers := fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", opts.clientPort)
	os.Args = append([]string{"kube-apiserver", servers}, rest...)
	return cli.Run(apiserver.NewAPIServerCommand())
}

// parseEtcdFlags splits the flags of etcd, up to "--", from those of kube-apiserver.
func parseEtcdFlags(args []string) (etcdOptions, []string, error) {
	var o etcdOptions
	set := flag.NewFlagSet("apiserver", flag.ContinueOnError)
	set.StringVar(&o.dir, "etcd-dir", "", "directory of etcd's data")
	set.IntVar(&o.clientPort, "etcd-client-port", 0, "port on 127.0.0.1 for etcd's clients")
	set.IntVar(&o.peerPort, "etcd-peer-port", 0, "port on 127.0.0.1 for etcd's peers")
	if err := set.Parse(args); err != nil {
		return o, nil, err
	}
	if o.dir == "" || o.clientPort == 0 || o.peerPort == 0 {
		return o, nil, errors.New("--etcd-dir, --etcd-client-port and --etcd-peer-port are all needed")
	}
	return o, set.Args(), nil
}

// startEtcd starts a single-member etcd on 127.0.0.1 and waits until it serves.
func startEtcd(o etcdOptions) (*embed.Etcd, error) {
	cfg := embed.NewConfig()
	cfg.Name = "sandbox"
	cfg.Dir = o.dir
	cfg.LogLevel = "warn"
	// A killed process keeps what it wrote; only a machine that loses power would not, and then the
	// sandbox is gone anyway.
	cfg.UnsafeNoFsync = true
	cfg.QuotaBackendBytes = 4 << 30
	// NewConfig leaves this at zero, which would log every request as too slow.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	client := []url.URL{localURL(o.clientPort)}
	peer := []url.URL{localURL(o.peerPort)}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = client, client
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peer, peer
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", o.dir, err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		return nil, fmt.Errorf("start etcd in %s: %w", o.dir, err)
	case <-time.After(etcdReady):
		etcd.Close()
		return nil, fmt.Errorf("start etcd in %s: not ready after %s", o.dir, etcdReady)
	}
}

// localURL is the plain http URL of a port on 127.0.0.1.
func localURL(port int) url.URL {
	return url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
}
