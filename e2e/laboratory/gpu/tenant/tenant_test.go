// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets this test be the program that a tenant's programs come from.
func TestMain(m *testing.M) {
	Enter()
	os.Exit(m.Run())
}

func newTenant(t *testing.T, m *Machine, kind Kind, limits Limits) *Tenant {
	t.Helper()
	tenant, err := m.New(kind, limits)
	if err != nil {
		t.Fatal(err)
	}
	return tenant
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestLimitsFileAndVariables(t *testing.T) {
	m := &Machine{Dir: t.TempDir(), Library: "/lib/ours.so", UUID: "GPU-1", Namespaces: true}
	ours := newTenant(t, m, Ours, Limits{Memory: 8 << 30, Cores: 30})
	file, err := os.ReadFile(filepath.Join(ours.vgpu(), "limits"))
	want := "vgpu-limits 1\nregion /tmp/vgpu/vgpu.cache\npolicy default\npriority 1\ndevice 0 GPU-1 memory=8589934592 cores=30\n"
	if err != nil || string(file) != want {
		t.Errorf("limits %q (%v), want %q", file, err, want)
	}
	if env, preload := ours.environment(); len(env) != 0 || preload != "/lib/ours.so" {
		t.Errorf("with a file: variables %q, preload %q", env, preload)
	}
	none := newTenant(t, m, Ours, Limits{None: true})
	if _, err := os.Stat(filepath.Join(none.vgpu(), "limits")); err == nil {
		t.Error("a tenant without limits has a file of them")
	}
	if env, preload := newTenant(t, m, Bare, Limits{Cores: 30}).environment(); len(env) != 0 || preload != "" {
		t.Errorf("bare: variables %q, preload %q", env, preload)
	}
}

func TestNeighboursHaveFilesInOneDirectory(t *testing.T) {
	m := &Machine{Dir: t.TempDir(), UUID: "GPU-1"}
	if err := m.Probe(soon(t)); err != nil {
		t.Skip("this machine allows no mount namespaces:", err)
	}
	first, second := newTenant(t, m, Ours, Limits{Cores: 30, Node: "n"}), newTenant(t, m, Ours, Limits{Cores: 70, Node: "n"})
	newTenant(t, m, Ours, Limits{Cores: 50, Node: "other"})
	out, err := first.unhooked().Run(soon(t), "sh", "-c", "ls /usr/local/vgpu/neighbours; cat /usr/local/vgpu/limits /usr/local/vgpu/neighbours/"+second.name()+".share")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out, ".demand"); n != 2 {
		t.Errorf("%d demand files, want those of the two of one node:\n%s", n, out)
	}
	for _, want := range []string{"borrow /usr/local/vgpu/neighbours/" + first.name() + "\n", "device 0 GPU-1 memory=0 cores=30", "device 0 GPU-1 memory=0 cores=70"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestWithoutNamespacesLimitsAreVariables(t *testing.T) {
	m := &Machine{Dir: t.TempDir(), Library: "/lib/ours.so"}
	tenant := newTenant(t, m, Ours, Limits{Memory: 3 << 20, Cores: 50, Policy: "force"})
	env, _ := tenant.environment()
	for _, want := range []string{"CUDA_DEVICE_MEMORY_LIMIT_0=3m", "CUDA_DEVICE_SM_LIMIT=50", "GPU_CORE_UTILIZATION_POLICY=force", "CUDA_DEVICE_MEMORY_SHARED_CACHE=" + tenant.Region()} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
}

func TestAnotherLibraryIsCopiedToWhereItLooksForItself(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libvgpu.so")
	if err := os.WriteFile(library, []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := &Machine{Dir: t.TempDir(), Namespaces: true}
	other := newTenant(t, m, Other, Limits{Cores: 50, Library: library})
	if data, err := os.ReadFile(filepath.Join(other.vgpu(), "libvgpu.so")); err != nil || string(data) != "other" {
		t.Errorf("copied %q, %v", data, err)
	}
	env, preload := other.environment()
	if preload != "/usr/local/vgpu/libvgpu.so" || !slices.Contains(env, "CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/vgpu/vgpu.cache") {
		t.Errorf("preload %q, variables %q", preload, env)
	}
	if _, err := m.New(Other, Limits{Library: "/none"}); err == nil || !strings.Contains(err.Error(), "other library") {
		t.Errorf("a library that is not there: %v", err)
	}
}

// answerer is a program in the protocol: it answers every line with itself.
const answerer = `echo noise; while read line; do case $line in
die) echo last words >&2; exit 3;; slow) sleep 0.3;; bad) echo "= error what=no";; *) echo "= said=$line n=5 f=0.5";; esac; done`

func startAnswerer(t *testing.T) (*Session, context.Context) {
	t.Helper()
	ctx := soon(t)
	s, err := newTenant(t, &Machine{Dir: t.TempDir()}, Bare, Limits{}).Start(ctx, "sh", "-c", answerer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s, ctx
}

func TestSessionAnswers(t *testing.T) {
	s, ctx := startAnswerer(t)
	a, err := s.Ask(ctx, "hello %d", 7)
	if err != nil || a.Text("said") != "hello" {
		t.Fatalf("answer %q, %v", a, err)
	}
	n, err := a.Int("n")
	f, err2 := a.Float("f")
	if n != 5 || f != 0.5 || err != nil || err2 != nil {
		t.Errorf("n=%d f=%v, %v %v", n, f, err, err2)
	}
	if _, err := a.Int("missing"); err == nil || !strings.Contains(err.Error(), "read missing") {
		t.Errorf("a number that is not there: %v", err)
	}
	if _, err := s.Ask(ctx, "bad"); err == nil || !strings.Contains(err.Error(), "what=no") {
		t.Errorf("an error as the answer: %v", err)
	}
}

func TestSessionThatEndsSaysItsLastWords(t *testing.T) {
	s, ctx := startAnswerer(t)
	if _, err := s.Ask(ctx, "die"); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("the error is %v", err)
	}
}

func TestAnAnswerNobodyWaitedForIsNotTakenForTheNext(t *testing.T) {
	s, ctx := startAnswerer(t)
	impatient, cancel := context.WithCancel(ctx)
	if err := s.Send("first"); err != nil {
		t.Fatal(err)
	}
	cancel()
	for s.owed == 0 { // the answer may be there before the cancellation is seen
		if _, err := s.Answer(impatient, "first"); err == nil {
			if err := s.Send("first"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a, err := s.Ask(ctx, "second"); err != nil || a.Text("said") != "second" {
		t.Errorf("answer %q, %v", a, err)
	}
	if _, err := s.Ask(impatient, "third"); err == nil {
		t.Error("asked after the end of its time")
	}
}

func TestKillEndsTheProgram(t *testing.T) {
	s, _ := startAnswerer(t)
	s.Kill()
	s.Kill() // again does no harm
	if err := s.Send("x"); err == nil {
		t.Error("a killed program takes commands")
	}
}

func TestRunSaysWhatFailed(t *testing.T) {
	tenant := newTenant(t, &Machine{Dir: t.TempDir()}, Bare, Limits{Env: []string{"GREETING=hi"}})
	out, err := tenant.Run(soon(t), "sh", "-c", "echo $GREETING")
	if err != nil || out != "hi\n" {
		t.Errorf("%q, %v", out, err)
	}
	_, err = tenant.Run(soon(t), "sh", "-c", "echo one; echo two >&2; exit 4")
	if err == nil || !strings.Contains(err.Error(), "two") {
		t.Errorf("error %v does not say what the program said last", err)
	}
	if _, err = tenant.Run(soon(t), "no-such-program"); err == nil {
		t.Error("a program that is not there ran")
	}
	if _, err := newTenant(t, &Machine{Dir: t.TempDir()}, Ours, Limits{Processes: true}).Command(t.Context(), "sh"); err == nil {
		t.Error("a PID namespace without namespaces")
	}
}

func TestATenantHasItsFilesAtTheirPlaces(t *testing.T) {
	m := &Machine{Dir: t.TempDir(), UUID: "GPU-1"}
	if err := m.Probe(soon(t)); err != nil {
		t.Skip("this machine allows no mount namespaces:", err)
	}
	first, second := newTenant(t, m, Ours, Limits{Cores: 30}), newTenant(t, m, Ours, Limits{Cores: 70})
	for tenant, want := range map[*Tenant]string{first: "cores=30", second: "cores=70"} {
		out, err := tenant.unhooked().Run(soon(t), "sh", "-c", "cat /usr/local/vgpu/limits; echo mine > /tmp/vgpu/vgpu.cache")
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("limits %q, %v; want %s", out, err, want)
		}
		if data, err := os.ReadFile(tenant.Region()); err != nil || string(data) != "mine\n" {
			t.Errorf("region %q, %v", data, err)
		}
	}
	if outside, err := os.ReadFile("/usr/local/vgpu/limits"); err == nil && strings.Contains(string(outside), "GPU-1 ") {
		t.Error("the limits of a tenant are seen outside of it")
	}
	inside := newTenant(t, m, Ours, Limits{Processes: true}).unhooked()
	out, err := inside.Run(soon(t), "sh", "-c", "echo $$; ls /proc | grep -c '^[0-9]'")
	if err != nil {
		t.Skip("this machine allows no PID namespaces:", err)
	}
	if !strings.HasPrefix(out, "1\n") {
		t.Errorf("in a PID namespace of its own it is process %q", out)
	}
}
