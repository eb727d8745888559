// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"deviceshare/sharing"
)

// given is what a container could have been given at some moment: it knows paths only.
type given struct {
	sync.Mutex
	files map[string]bool // labelled as soon as the name is there
	dirs  map[string]bool // labelled from when they are given
}

// unlabelled is the first thing that containers may be given and cannot use.
func (g *given) unlabelled(shelf string) error {
	g.Lock()
	defer g.Unlock()
	look := func(path string) error {
		is, err := labelled(path)
		if errors.Is(err, fs.ErrNotExist) || is {
			return nil
		}
		return fmt.Errorf("%s has no label (%v)", path, err)
	}
	var wrong []error
	for path := range g.files {
		wrong = append(wrong, look(path))
	}
	for path := range g.dirs {
		wrong = append(wrong, look(path))
	}
	names, err := os.ReadDir(Shown(shelf))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		wrong = append(wrong, err)
	}
	for _, e := range names {
		wrong = append(wrong, look(filepath.Join(Shown(shelf), e.Name())))
	}
	return errors.Join(wrong...)
}

// checked looks at everything before it sets a label, in the middle of an effect.
type checked struct {
	g     *given
	shelf string
	wrong *[]error
}

func (c checked) Label(path string) error {
	if err := c.g.unlabelled(c.shelf); err != nil {
		*c.wrong = append(*c.wrong, fmt.Errorf("while %s is labelled: %w", path, err))
	}
	return SELinux{}.Label(path)
}

// turn is one random effect. It returns what it did.
func (g *given) turn(r *rand.Rand, files OS, space Tmpfs, root, shelf string) (string, error) {
	name := string(rune('a' + r.IntN(3)))
	path, private, dir := filepath.Join(root, name), filepath.Join(root, "private-"+name), filepath.Join(root, "dir-"+name)
	content := []byte{byte('0' + r.IntN(3))}
	switch r.IntN(9) {
	case 0, 1:
		g.Lock()
		g.files[path] = true
		g.Unlock()
		return "expose " + path, files.Expose(path, content, 0o444)
	case 2:
		return "write " + private, files.Write(private, content, 0o600)
	case 3:
		err := errors.Join(files.MakeDir(dir, 0o700), space.Limit(dir, Bound{Size: sharing.MiB << r.IntN(2), Mode: 0o700}))
		g.Lock()
		g.dirs[dir] = err == nil
		g.Unlock()
		return "limit " + dir, err
	case 4:
		g.Lock()
		delete(g.dirs, dir)
		g.Unlock()
		return "release " + dir, space.Release(dir)
	case 5, 6:
		return "put " + name, space.Put(shelf, name, content, 0o444)
	case 7:
		return "drop " + name, space.Drop(shelf, name)
	}
	return "remove " + path, files.Remove(path)
}

// For as long as containers can see something it bears the label, whatever comes in which order,
// and what they cannot see never does.
func TestWhateverContainersSeeIsLabelledAtEveryMoment(t *testing.T) {
	needLabels(t)
	for seed := range uint64(4) {
		root, shelf := t.TempDir(), shelf(t)
		g := &given{files: map[string]bool{}, dirs: map[string]bool{}}
		var wrong []error
		labels := checked{g: g, shelf: shelf, wrong: &wrong}
		files, space := OS{Labels: labels}, Tmpfs{Labels: labels}
		done, watched := make(chan struct{}), make(chan error, 1)
		go func() { // another process
			for {
				select {
				case <-done:
					watched <- nil
					return
				default:
				}
				if err := g.unlabelled(shelf); err != nil {
					watched <- err
					return
				}
			}
		}()
		r := rand.New(rand.NewPCG(seed, 1))
		for range 100 {
			did, err := g.turn(r, files, space, root, shelf)
			if err = errors.Join(err, g.unlabelled(shelf)); err != nil {
				t.Errorf("seed %d: %s: %v", seed, did, err)
				break
			}
		}
		close(done)
		if err := errors.Join(append(wrong, <-watched)...); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		for name := range 3 {
			private := filepath.Join(root, "private-"+string(rune('a'+name)))
			if is, _ := labelled(private); is {
				t.Errorf("seed %d: %s is labelled, and no container has it", seed, private)
			}
			if err := space.Release(filepath.Join(root, "dir-"+string(rune('a'+name)))); err != nil {
				t.Error(err)
			}
		}
	}
}
