// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"deviceshare/sharing"
)

func TestAHostNeedsLabelsIfItsKernelHasAPolicyOfSELinux(t *testing.T) {
	const others, with = "nodev\tsysfs\nnodev\ttmpfs\n\text4\n", "nodev\tsysfs\nnodev\tselinuxfs\n\text4\n"
	for name, tc := range map[string]struct {
		filesystems, own string
		want             bool
	}{
		"a pod on an enforcing or permissive host": {with, "system_u:system_r:spc_t:s0\x00", true},
		"a kernel with another module":             {others, "cri-containerd.apparmor.d (enforce)\n", false},
		"a kernel without any":                     {others, "", false},
		"SELinux that loaded no policy":            {with, "kernel\x00", false},
		"a file system that is only named alike":   {others + "nodev\tnotselinuxfs\n", "x", false},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			err := errors.Join(os.MkdirAll(filepath.Join(proc, "self", "attr"), 0o755),
				os.WriteFile(filepath.Join(proc, "filesystems"), []byte(tc.filesystems), 0o600),
				os.WriteFile(filepath.Join(proc, "self", "attr", "current"), []byte(tc.own), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			if labels, err := LabelsOf(proc); err != nil || (labels != nil) != tc.want {
				t.Errorf("labels are %v, %v; want some: %v", labels, err, tc.want)
			}
		})
	}
}

func TestAHostThatCannotBeAskedIsNoHostWithoutLabels(t *testing.T) {
	proc := t.TempDir()
	if labels, err := LabelsOf(proc); err == nil {
		t.Errorf("without a list of file systems labels are %v", labels)
	}
	if err := os.WriteFile(filepath.Join(proc, "filesystems"), []byte("nodev\tselinuxfs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if labels, err := LabelsOf(proc); err == nil {
		t.Errorf("without a label of its own labels are %v", labels)
	}
}

// labelled reports whether a file bears the label. It asks the kernel itself.
func labelled(path string) (bool, error) {
	text := make([]byte, 256)
	n, err := unix.Lgetxattr(path, "security.selinux", text)
	if errors.Is(err, unix.ENODATA) {
		return false, nil
	}
	return err == nil && strings.TrimRight(string(text[:n]), "\x00") == "system_u:object_r:container_file_t:s0", err
}

// needLabels skips a test where labels cannot be set, as by users other than root. A kernel
// without SELinux keeps them and does not look at them.
func needLabels(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (SELinux{}).Label(path); err != nil {
		t.Skip(err)
	}
}

// recorded labels nothing. It notes what it was asked to label and what was to be seen then.
type recorded struct {
	calls  []string
	look   func() string
	refuse error
}

func (r *recorded) Label(path string) error {
	call := filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
	if unfinished, ok := UnfinishedOf(filepath.Base(path)); ok {
		call = "unfinished " + unfinished
	}
	if r.look != nil {
		call += " while " + r.look()
	}
	r.calls = append(r.calls, call)
	return r.refuse
}

func TestAFileIsLabelledBeforeItHasItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits")
	r := &recorded{look: func() string {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return "none is there"
		}
		return string(content) + " is there"
	}}
	files := OS{Labels: r}
	for _, text := range []string{"old", "old", "new"} {
		if err := files.Expose(path, []byte(text), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Write(path, []byte("private"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"unfinished limits while none is there",
		filepath.Base(filepath.Dir(path)) + "/limits while old is there", // it may have lost its label
		"unfinished limits while old is there",
	}
	if !slices.Equal(r.calls, want) {
		t.Errorf("labelled were\n%q, want\n%q", r.calls, want)
	}
}

func TestDirectoriesAndFilesOfAShelfAreLabelledBeforeContainersHaveThem(t *testing.T) {
	dir := shelf(t)
	r := &recorded{look: func() string {
		names, err := OS{}.List(Shown(dir))
		return fmt.Sprint("shown are ", names, err)
	}}
	space := Tmpfs{Labels: r}
	for range 2 {
		if err := space.Put(dir, "a.share", []byte("x"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"001/shm while shown are [] <nil>", "shm/shown while shown are [] <nil>", "spare/0 while shown are [] <nil>",
		"001/shm while shown are [a.share] <nil>", "shm/shown while shown are [a.share] <nil>", "shown/a.share while shown are [a.share] <nil>",
	}
	if !slices.Equal(r.calls, want) {
		t.Errorf("labelled were\n%q, want\n%q", r.calls, want)
	}
}

func TestWhatCannotBeLabelledIsNotSeen(t *testing.T) {
	refused := errors.New("operation not supported")
	dir := shelf(t)
	kept := filepath.Join(t.TempDir(), "limits")
	if err := (OS{}).Expose(kept, []byte("old"), 0o444); err != nil {
		t.Fatal(err)
	}
	r := &recorded{refuse: refused}
	if err := (OS{Labels: r}).Expose(kept, []byte("new"), 0o444); !errors.Is(err, refused) {
		t.Errorf("a file is answered with %v", err)
	}
	if names, err := (OS{}).List(filepath.Dir(kept)); err != nil || !slices.Equal(names, []string{"limits"}) {
		t.Errorf("left are %v (%v)", names, err)
	}
	if content, err := os.ReadFile(kept); err != nil || string(content) != "old" {
		t.Errorf("the file says %q (%v)", content, err)
	}
	if err := (Tmpfs{Labels: r}).Limit(dir, Bound{Size: sharing.MiB, Mode: 0o700}); !errors.Is(err, refused) {
		t.Errorf("a directory is answered with %v", err)
	}
	if there, err := ownTmpfs(dir); err != nil || there {
		t.Errorf("the directory is limited: %v, %v", there, err)
	}
	if err := (Tmpfs{}).Put(dir, "mine", []byte("x"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := (Tmpfs{Labels: r}).Put(dir, "other", []byte("x"), 0o444); !errors.Is(err, refused) {
		t.Errorf("a shelf is answered with %v", err)
	}
	if names, err := (OS{}).List(Shown(dir)); err != nil || !slices.Equal(names, []string{"mine"}) {
		t.Errorf("shown are %v (%v)", names, err)
	}
}

func TestAnErrorOfALabelSaysWhatToDo(t *testing.T) {
	err := SELinux{}.Label(filepath.Join(t.TempDir(), "gone"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "docs/selinux.md") || !strings.Contains(err.Error(), "gone as system_u:") {
		t.Error(err)
	}
}

func TestALabelIsSetOfALinkAndNotOfWhereItLeads(t *testing.T) {
	needLabels(t)
	dir := t.TempDir()
	target, link := filepath.Join(dir, "passwd"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if err := (SELinux{}).Label(link); err != nil {
		t.Fatal(err)
	}
	if is, err := labelled(target); err != nil || is {
		t.Errorf("the file that a link leads to is labelled: %v, %v", is, err)
	}
}

// A label takes room of its file system, too (tmpfs counts it since Linux 6.6).
func TestEveryFileOfAShelfCanHaveALabel(t *testing.T) {
	needLabels(t)
	dir, space := shelf(t), Tmpfs{Labels: SELinux{}}
	n := 0
	for ; ; n++ {
		if err := space.Put(dir, "n"+strconv.Itoa(n), []byte("x"), 0o444); errors.Is(err, ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	var now unix.Statfs_t
	if err := unix.Statfs(dir, &now); err != nil || n != shelfFiles || now.Bfree != 0 {
		t.Errorf("%d files were put and %d pages are free (%v), want %d and none", n, now.Bfree, err, shelfFiles)
	}
}
