// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const ours = "/usr/local/vgpu/libvgpu.so"

// container is one that is about to start: its bundle, and the file that is mounted into it.
type container struct {
	t      *testing.T
	bundle string
	file   string
}

func newContainer(t *testing.T) *container {
	t.Helper()
	dir := t.TempDir()
	c := &container{t: t, bundle: filepath.Join(dir, "bundle"), file: filepath.Join(dir, "ld.so.preload")}
	must(t, os.MkdirAll(c.root("etc"), 0o755))
	c.configure(`{"ociVersion":"1.1.0","root":{"path":"rootfs","readonly":true},"hooks":{}}`)
	must(t, os.WriteFile(c.file, []byte(ours+"\n"), 0o444))
	must(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("/of/the/host.so\n"), 0o600))
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *container) root(path string) string { return filepath.Join(c.bundle, "rootfs", path) }

func (c *container) configure(text string) {
	c.t.Helper()
	must(c.t, os.WriteFile(filepath.Join(c.bundle, "config.json"), []byte(text), 0o600))
}

// image writes the image's file.
func (c *container) image(text string) {
	c.t.Helper()
	must(c.t, os.WriteFile(c.root(preloadInside), []byte(text), 0o600))
}

// state is what the runtime says.
func (c *container) state() string {
	text, err := json.Marshal(map[string]any{"ociVersion": "1.1.0", "id": "abc", "status": "creating", "pid": 1, "bundle": c.bundle})
	must(c.t, err)
	return string(text)
}

func (c *container) merge() error {
	return Preload{Library: ours, File: c.file}.Merge(strings.NewReader(c.state()))
}

// wants checks what the container would see.
func (c *container) wants(lines ...string) {
	c.t.Helper()
	got, err := os.ReadFile(c.file)
	if want := strings.Join(append([]string{ours}, lines...), "\n") + "\n"; err != nil || string(got) != want {
		c.t.Errorf("the container sees %q (%v), want %q", got, err, want)
	}
}

func TestWhatTheImagePreloadsIsKeptBehindOurs(t *testing.T) {
	c := newContainer(t)
	c.image("# ours\n/opt/tools.so:/opt/trace.so")
	before, err := os.Stat(c.file)
	must(t, err)
	must(t, c.merge())
	c.wants("/opt/tools.so", "/opt/trace.so")
	// The runtime may have mounted it before.
	if after, err := os.Stat(c.file); err != nil || !os.SameFile(before, after) || after.Mode().Perm() != 0o444 {
		t.Errorf("it is another file, or has another mode: %v %v", after, err)
	}
	must(t, c.merge()) // the container starts again
	c.wants("/opt/tools.so", "/opt/trace.so")
	c.image("/opt/b.so\n") // with another image, and a shorter file
	must(t, c.merge())
	c.wants("/opt/b.so")
}

// What a stranger's image can have in that place.
func TestAnImageWithoutAFileThatALoaderWouldReadAddsNothing(t *testing.T) {
	tests := map[string]func(c *container) error{
		"there is none":                       func(*container) error { return nil },
		"an empty file, as a mount leaves it": func(c *container) error { return os.WriteFile(c.root(preloadInside), nil, 0o600) },
		"there is no /etc":                    func(c *container) error { return os.Remove(c.root("etc")) },
		"/etc is a file": func(c *container) error {
			return errors.Join(os.Remove(c.root("etc")), os.WriteFile(c.root("etc"), []byte("x"), 0o600))
		},
		"a directory":                          func(c *container) error { return os.Mkdir(c.root(preloadInside), 0o700) },
		"a pipe, whose reader would wait":      func(c *container) error { return unix.Mkfifo(c.root(preloadInside), 0o600) },
		"a link to nothing":                    func(c *container) error { return os.Symlink("/nowhere", c.root(preloadInside)) },
		"a link to itself":                     func(c *container) error { return os.Symlink("ld.so.preload", c.root(preloadInside)) },
		"a link to a file of the host":         func(c *container) error { return os.Symlink(filepath.Dir(c.file)+"/secret", c.root(preloadInside)) },
		"a link that climbs out":               func(c *container) error { return os.Symlink("../../../secret", c.root(preloadInside)) },
		"a link to the hook's own files":       func(c *container) error { return os.Symlink("/proc/self/environ", c.root(preloadInside)) },
		"a link by way of the hook's own root": func(c *container) error { return os.Symlink("/proc/self/root/etc/passwd", c.root(preloadInside)) },
		"/etc is a link out of the image": func(c *container) error {
			return errors.Join(os.Remove(c.root("etc")), os.Symlink(filepath.Dir(c.file), c.root("etc")))
		},
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t)
			must(t, make(c))
			must(t, c.merge())
			c.wants()
		})
	}
}

// A device may do something when it is opened; a watchdog restarts the machine.
func TestADeviceIsNotOpened(t *testing.T) {
	c := newContainer(t)
	const unknown = 0xfff << 8 // no driver has this number, so that opening it fails
	if err := unix.Mknod(c.root(preloadInside), unix.S_IFCHR|0o666, unknown); err != nil {
		t.Skipf("only root can make a device: %v", err)
	}
	must(t, c.merge())
	c.wants()
}

func TestALinkWithinTheImageIsFollowedThere(t *testing.T) {
	c := newContainer(t)
	must(t, os.MkdirAll(c.root("usr/share"), 0o755))
	must(t, os.WriteFile(c.root("usr/share/preload"), []byte("/opt/a.so\n"), 0o600))
	must(t, os.Symlink("/usr/share/preload", c.root(preloadInside)))
	must(t, c.merge())
	c.wants("/opt/a.so")
}

func TestAContainerDoesNotStartWhereNothingCanBeKnown(t *testing.T) {
	tests := map[string]struct {
		change func(c *container)
		state  string // "" is the right one
		want   string
	}{
		"the image's file is huge":          {change: func(c *container) { c.image(strings.Repeat("/opt/a.so\n", 7000)) }, want: "more than 65536 bytes"},
		"the image is away":                 {change: func(c *container) { must(c.t, os.RemoveAll(c.root("/"))) }, want: "no such file"},
		"the runtime says nothing":          {state: " ", want: "unexpected end"},
		"the runtime says something else":   {state: "[]", want: "runtime's state"},
		"the runtime names no bundle":       {state: `{"id":"abc"}`, want: "no absolute path"},
		"the runtime's text has no end":     {state: strings.Repeat(" ", 2<<20), want: "more than 1048576 bytes"},
		"the bundle is away":                {change: func(c *container) { must(c.t, os.Remove(c.bundle+"/config.json")) }, want: "container's bundle"},
		"the bundle is no JSON":             {change: func(c *container) { c.configure("{") }, want: "unexpected end"},
		"the bundle names no root":          {change: func(c *container) { c.configure("{}") }, want: "names no root"},
		"the bundle's root has no path":     {change: func(c *container) { c.configure(`{"root":{}}`) }, want: "names no root"},
		"the container's file is not there": {change: func(c *container) { must(c.t, os.Remove(c.file)) }, want: "no such file"},
		"the container's file is a link": {change: func(c *container) {
			must(c.t, errors.Join(os.Rename(c.file, c.file+".real"), os.Symlink(c.file+".real", c.file)))
		}, want: "symbolic links"},
		"the container's file is a pipe": {change: func(c *container) {
			must(c.t, errors.Join(os.Remove(c.file), unix.Mkfifo(c.file, 0o600)))
		}, want: "no file"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t)
			c.image("/opt/a.so\n")
			if tc.change != nil {
				tc.change(c)
			}
			state := tc.state
			if state == "" {
				state = c.state()
			}
			err := Preload{Library: ours, File: c.file}.Merge(strings.NewReader(state))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the hook says %v, want %q", err, tc.want)
			}
		})
	}
}

// Root in a container owns the host's files, too, and may lease one: whoever opens it waits for
// 45 s then.
func TestAProgramWithALeaseHoldsNobodyUp(t *testing.T) {
	for name, leased := range map[string]func(c *container) string{
		"the image's file":     func(c *container) string { return c.root(preloadInside) },
		"the container's file": func(c *container) string { return c.file },
	} {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t)
			c.image("/opt/a.so\n")
			f, err := os.OpenFile(leased(c), os.O_RDWR, 0)
			must(t, err)
			defer f.Close()
			if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
				t.Skipf("this file system has no leases: %v", err)
			}
			if err := c.merge(); !errors.Is(err, unix.EWOULDBLOCK) {
				t.Errorf("the hook says %v, want that it would have to wait", err)
			}
		})
	}
}
