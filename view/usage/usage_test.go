// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"os"
	"strings"
	"testing"

	"deviceshare/view/usage"
)

const page = `# HELP deviceshare_container_memory_used_bytes Memory.
# TYPE deviceshare_container_memory_used_bytes gauge
deviceshare_container_memory_used_bytes{namespace="a",pod="p",container="c",device="GPU-1",mode="hami-core"} 1.048576e+06
deviceshare_container_memory_used_bytes{namespace="a",pod="p",container="c",device="GPU-2",mode="mig"} 5
# TYPE deviceshare_container_memory_limit_bytes gauge
deviceshare_container_memory_limit_bytes{namespace="a",pod="p",container="c",device="GPU-1",mode="hami-core"} 2.097152e+06
# TYPE deviceshare_container_gpu_seconds_total counter
deviceshare_container_gpu_seconds_total{namespace="a",pod="p",container="c",device="GPU-1",mode="hami-core"} 12.5
# TYPE deviceshare_device_stranger_memory_bytes gauge
deviceshare_device_stranger_memory_bytes{device="GPU-1",namespace="",pod=""} 7
deviceshare_device_stranger_memory_bytes{device="GPU-1",namespace="b",pod="q"} 8
# TYPE something_else histogram
something_else_bucket{le="+Inf"} 3
something_else_sum 3
something_else_count 3
`

func TestUsesAreReadByContainerAndDevice(t *testing.T) {
	p, err := usage.Read(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	one := usage.Holder{Namespace: "a", Pod: "p", Container: "c", Device: "GPU-1"}
	if got, want := p.Uses[one], (usage.Use{Memory: 1 << 20, Limit: 2 << 20, Seconds: 12.5, Measured: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	one.Device = "GPU-2"
	if got, want := p.Uses[one], (usage.Use{Memory: 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(p.Uses) != 2 || p.Strangers["GPU-1"] != 15 {
		t.Errorf("got %+v", p)
	}
}

func TestAPageThatIsNoneIsAnError(t *testing.T) {
	if _, err := usage.Read(strings.NewReader("<html>not found</html>")); err == nil {
		t.Error("it was read")
	}
}

// The device plugin cannot be imported here: the page on its metrics stands between the two.
func TestTheMetricsAreThoseThatAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range usage.Metrics() {
		if !strings.Contains(string(text), "`"+name+"`") && !strings.Contains(string(text), "`"+name+"{") {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(page)
	f.Add("deviceshare_container_memory_used_bytes NaN\ndeviceshare_container_memory_limit_bytes -5e300\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := usage.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		for h, u := range p.Uses {
			if u.Memory < 0 || u.Limit < 0 || !(u.Seconds >= 0) {
				t.Errorf("%+v uses %+v", h, u)
			}
		}
	})
}
