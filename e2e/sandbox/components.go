// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"
)

// define makes a component with what all of them share: log file, additions from the options.
func (c *Cluster) define(name, path string, args ...string) component {
	return component{
		name: name, path: path, log: c.layout.log(name),
		args: append(args, c.opts.Args[name]...),
	}
}

func (c *Cluster) apiServer() component {
	l, p := c.layout, c.ports
	args := []string{"apiserver",
		"--etcd-dir=" + l.in("etcd"), flag("etcd-client-port", p.EtcdClient), flag("etcd-peer-port", p.EtcdPeer), "--",
		"--bind-address=" + c.apiHost(), flag("secure-port", p.API), "--advertise-address=" + c.apiHost(),
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=" + l.serviceRange().String(),
		// A webhook is called at its pods' addresses: nothing here translates those of Services.
		"--enable-aggregator-routing=true",
		"--tls-cert-file=" + l.cert("apiserver"), "--tls-private-key-file=" + l.key("apiserver"),
		"--client-ca-file=" + l.cert("ca"), "--authorization-mode=Node,RBAC", "--anonymous-auth=false",
		"--kubelet-client-certificate=" + l.cert("apiserver-kubelet"), "--kubelet-client-key=" + l.key("apiserver-kubelet"),
		"--kubelet-certificate-authority=" + l.cert("ca"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.cert("service-accounts"),
		"--service-account-signing-key-file=" + l.key("service-accounts"),
		"--enable-admission-plugins=NodeRestriction", "--profiling=false", "--allow-privileged=true",
		"--event-ttl=24h", "--v=1",
	}
	if c.opts.Audit {
		args = append(args, "--audit-policy-file="+l.config("audit.yaml"), "--audit-log-path="+l.auditLog(),
			"--audit-log-mode=blocking", "--audit-log-maxsize=4096")
	}
	out := c.define(APIServer, c.opts.controlPlane(l), args...)
	out.ready = c.askAPI("/readyz")
	return out
}

func (c *Cluster) controllerManager() component {
	l := c.layout
	out := c.define(ControllerManager, c.opts.controlPlane(l), "controller-manager",
		"--kubeconfig="+l.kubeconfig(ControllerManager), "--bind-address=127.0.0.1",
		flag("secure-port", c.ports.ControllerManager), "--leader-elect=false", "--profiling=false",
		"--root-ca-file="+l.cert("ca"), "--service-account-private-key-file="+l.key("service-accounts"),
		"--kube-api-qps=500", "--kube-api-burst=1000", "--cluster-name=sandbox",
		// Nothing in the sandbox needs these, and each costs watches and memory.
		"--controllers=*,-cronjob,-horizontal-pod-autoscaler-controller,-certificatesigningrequest-signing-controller,"+
			"-certificatesigningrequest-approving-controller,-ttl-after-finished-controller,-bootstrap-signer-controller,-token-cleaner-controller")
	out.ready = askHTTP("https", c.ports.ControllerManager, "/healthz")
	return out
}

// defaultScheduler is Kubernetes' own, which places the product's pods. Pods of the tests name
// Volcano's.
func (c *Cluster) defaultScheduler() component {
	out := c.define(DefaultScheduler, c.opts.controlPlane(c.layout), "scheduler",
		"--kubeconfig="+c.layout.kubeconfig(DefaultScheduler), "--bind-address=127.0.0.1",
		flag("secure-port", c.ports.DefaultScheduler), "--leader-elect=false", "--profiling=false")
	out.ready = askHTTP("https", c.ports.DefaultScheduler, "/healthz")
	return out
}

func (c *Cluster) volcanoControllers() component {
	l := c.layout
	out := c.define(VolcanoController, l.bin(VolcanoController),
		"--kubeconfig="+l.kubeconfig(VolcanoController), "--leader-elect=false", "--enable-healthz=true",
		fmt.Sprintf("--healthz-address=127.0.0.1:%d", c.ports.VolcanoHealth),
		fmt.Sprintf("--listen-address=127.0.0.1:%d", c.ports.VolcanoMetrics),
		"--scheduler-name=volcano", "--kube-api-qps=500", "--kube-api-burst=1000", "--worker-threads-for-podgroup=10",
		"--logtostderr", "-v=2")
	out.ready = askHTTP("http", c.ports.VolcanoHealth, "/healthz")
	if !c.opts.Installed { // the scheduler, which makes the queue, comes later there
		out.ready = both(out.ready, c.askQueue)
	}
	return out
}

func (c *Cluster) scheduler() component {
	l := c.layout
	out := c.define(Scheduler, schedulerBinary(c.opts, l),
		"--kubeconfig="+l.kubeconfig(Scheduler), "--scheduler-conf="+l.config("scheduler.conf"),
		"--schedule-period="+c.opts.SchedulePeriod.String(), "--leader-elect=false",
		"--enable-healthz=true", fmt.Sprintf("--healthz-address=127.0.0.1:%d", c.ports.SchedulerHealth),
		"--enable-metrics=true", fmt.Sprintf("--listen-address=127.0.0.1:%d", c.ports.SchedulerMetrics),
		"--percentage-nodes-to-find=100", "--kube-api-qps=2000", "--kube-api-burst=2000", "--cache-dump-dir="+l.in("logs"), "--logtostderr", "-v=3")
	out.ready = askHTTP("http", c.ports.SchedulerHealth, "/healthz")
	return out
}

func (c *Cluster) containerd() component {
	l := c.layout
	out := c.define(Containerd, filepath.Join(l.runtime(), "containerd"), "--config="+l.config("containerd.toml"))
	out.ready = askSocket(l.containerdSocket())
	return out
}

func (c *Cluster) kubelet() component {
	l := c.layout
	out := c.define(Kubelet, c.opts.controlPlane(l), "kubelet",
		"--config="+l.config("kubelet.yaml"), "--kubeconfig="+l.kubeconfig(Kubelet), "--root-dir="+kubeletDir,
		"--hostname-override="+NodeName, "--node-ip="+c.nodeIP, "--v=2")
	out.ready = both(askHTTP("http", c.ports.KubeletHealth, "/healthz"), c.askNode)
	return out
}

// devicePlugin runs the production binary; the loader finds the fake NVML where a real node has
// NVIDIA's.
func (c *Cluster) devicePlugin() component {
	l := c.layout
	lib := "/usr/lib/x86_64-linux-gnu/"
	out := c.define(DevicePlugin, productBinary(c.opts, l, DevicePlugin),
		"--node-name="+NodeName, "--kubeconfig="+l.kubeconfig(DevicePlugin), "--kubelet-dir="+kubeletDir,
		"--cdi-dir="+l.cdiDir(), "--state-dir="+l.in("device-plugin"), "--library-dir="+l.libDir(),
		"--driver-edits=files", "--dev-root="+l.devDir(), "--mig-minors="+filepath.Join(l.gpuDir(), "mig-minors"),
		"--driver-file="+filepath.Join(l.libDir(), "libcuda.so.1")+":"+lib+"libcuda.so.1",
		"--driver-file="+filepath.Join(l.libDir(), "libnvidia-ml.so.1")+":"+lib+"libnvidia-ml.so.1",
		"--driver-file="+l.gpuDir()+":/run/fakegpu:rw",
		"--mps-control="+filepath.Join(l.libDir(), "nvidia-cuda-mps-control"), "--mps-root="+l.in("mps"),
		fmt.Sprintf("--metrics-address=127.0.0.1:%d", c.ports.DevicePluginMetrics))
	out.env = c.gpuEnv()
	out.ready = c.askGPUs
	return out
}

func (c *Cluster) webhook() component {
	l := c.layout
	out := c.define(Webhook, productBinary(c.opts, l, Webhook),
		"--kubeconfig="+l.kubeconfig(Webhook), flag("port", c.ports.Webhook),
		"--bind-address=127.0.0.1", "--certificate-dir="+l.webhookDir(),
		fmt.Sprintf("--health-address=127.0.0.1:%d", c.ports.WebhookHealth),
		fmt.Sprintf("--metrics-address=127.0.0.1:%d", c.ports.WebhookMetrics))
	out.ready = both(askHTTP("http", c.ports.WebhookHealth, "/readyz"), both(askPort(c.ports.Webhook), c.askRegistered))
	return out
}

// flag renders a flag with a number.
func flag(name string, n int) string { return "--" + name + "=" + strconv.Itoa(n) }

// both is ready when both are.
func both(a, b func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := a(ctx); err != nil {
			return err
		}
		return b(ctx)
	}
}

// askHTTP asks a health address on 127.0.0.1. The certificates there are made by the component
// itself, and health is no secret, so they are not checked.
func askHTTP(scheme string, port int, path string) func(context.Context) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	url := fmt.Sprintf("%s://127.0.0.1:%d%s", scheme, port, path)
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}

// askSocket and askPort are satisfied by a listener.
func askSocket(path string) func(context.Context) error { return dial("unix", path) }
func askPort(port int) func(context.Context) error {
	return dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

func dial(network, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
