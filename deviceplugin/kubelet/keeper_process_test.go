// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/kubelet/kubelettest"
)

// keeperVariable makes this program a keeper: a Proxy between the two directories that it names.
const keeperVariable = "DEVICESHARE_TEST_KEEPER"

func TestMain(m *testing.M) {
	if at := os.Getenv(keeperVariable); at != "" {
		kubeletDir, dir, _ := strings.Cut(at, ":")
		proxy := kubelet.NewProxy(kubelet.ProxyConfig{
			Kubelet: kubeletDir, Directory: dir, Grace: long, Patience: time.Second, Leave: 100 * time.Millisecond,
		})
		if proxy.Run(context.Background()) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// keeperProcess is a keeper that can be killed and frozen, as only a process can.
type keeperProcess struct {
	t       *testing.T
	kubelet *kubelettest.Kubelet
	dir     string
	cmd     *exec.Cmd // nil while there is none
	frozen  bool
}

func (p *keeperProcess) start() {
	p.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), keeperVariable+"="+p.kubelet.Plugins()+":"+p.dir)
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd = cmd
	p.t.Cleanup(func() {
		if p.cmd == cmd {
			p.kill()
		}
	})
}

// kill ends it without a word, frozen or not, and waits until the kubelet has noticed.
func (p *keeperProcess) kill() {
	p.signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
	p.cmd, p.frozen = nil, false
	for p.kubelet.Reads("deviceshare-proxy.sock") {
		time.Sleep(time.Millisecond)
	}
}

// freeze lets it accept connections and answer nothing.
func (p *keeperProcess) freeze() {
	p.signal(syscall.SIGSTOP)
	p.frozen = true
}

func (p *keeperProcess) thaw() {
	p.signal(syscall.SIGCONT)
	p.frozen = false
}

func (p *keeperProcess) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// isHere reports whether it does what a keeper has to.
func (p *keeperProcess) isHere() bool { return p.cmd != nil && !p.frozen }
