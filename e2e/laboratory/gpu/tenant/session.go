// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"deviceshare/e2e/report"
)

// answerMark begins every line that answers a command; other lines are the program's.
const answerMark = "= "

// Session is a program that answers commands, one line each. Its methods are for one
// goroutine, except Kill.
type Session struct {
	PID   int // in this process's namespace
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	said  *tail
	owed  int // answers that nobody waited for
	once  sync.Once
	gone  chan struct{}
}

// Answer is the text of one answer: words, of which some are key=value.
type Answer string

// Text is the value of a key, "" if there is none.
func (a Answer) Text(key string) string { return report.Value(string(a), key) }

// Int is the value of a key as a whole number.
func (a Answer) Int(key string) (int64, error) {
	n, err := strconv.ParseInt(a.Text(key), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s of answer %q: %w", key, a, err)
	}
	return n, nil
}

// Float is the value of a key as a number.
func (a Answer) Float(key string) (float64, error) {
	n, err := strconv.ParseFloat(a.Text(key), 64)
	if err != nil {
		return 0, fmt.Errorf("read %s of answer %q: %w", key, a, err)
	}
	return n, nil
}

// tail keeps the last of what a program says beside its answers.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if over := t.text.Len() - tailBytes; over > 0 {
		t.text.Next(over)
	}
	return len(p), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lastLine(t.text.String())
}

// Start starts a program that lives until it is closed, killed or ctx ends.
func (t *Tenant) Start(ctx context.Context, program string, args ...string) (*Session, error) {
	cmd, err := t.Command(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	s := &Session{cmd: cmd, lines: make(chan string, 16), said: &tail{}, gone: make(chan struct{})}
	cmd.Stderr = s.said
	if s.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	s.PID = cmd.Process.Pid
	go s.read(out)
	return s, nil
}

func (s *Session) read(out io.Reader) {
	defer close(s.lines)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), answerMark); ok {
			s.lines <- text
		} else {
			_, _ = s.said.Write([]byte(lines.Text() + "\n"))
		}
	}
}

// errGone is the error of a program that ended.
var errGone = errors.New("the program ended")

// Ask sends a command and waits for its answer. An answer "error ..." is an error.
func (s *Session) Ask(ctx context.Context, format string, args ...any) (Answer, error) {
	command := fmt.Sprintf(format, args...)
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("ask %q: %w", command, err)
	}
	if err := s.Send(command); err != nil {
		return "", err
	}
	return s.Answer(ctx, command)
}

// Send sends a command without waiting; Answer fetches what it answers.
func (s *Session) Send(command string) error {
	if _, err := io.WriteString(s.in, command+"\n"); err != nil {
		return fmt.Errorf("send %q: %w: %s", command, errGone, s.said.last())
	}
	return nil
}

// Answer waits for the answer to the oldest command that was sent and not answered.
// Answers that an earlier call gave up waiting for are passed over.
func (s *Session) Answer(ctx context.Context, command string) (Answer, error) {
	for {
		select {
		case line, open := <-s.lines:
			if !open {
				return "", fmt.Errorf("ask %q: %w: %s", command, errGone, s.said.last())
			}
			if s.owed > 0 {
				s.owed--
				continue
			}
			if why, failed := strings.CutPrefix(line, "error "); failed {
				return "", fmt.Errorf("ask %q: %s", command, why)
			}
			return Answer(line), nil
		case <-ctx.Done():
			s.owed++
			return "", fmt.Errorf("ask %q: %w", command, ctx.Err())
		}
	}
}

// Kill ends the program at once and waits until the kernel has taken it away, for as
// long as the grace lasts.
func (s *Session) Kill() {
	s.once.Do(func() {
		_ = syscall.Kill(-s.PID, syscall.SIGKILL)
		go func() {
			for range s.lines {
			}
			_ = s.cmd.Wait()
			close(s.gone)
		}()
	})
	select {
	case <-s.gone:
	case <-time.After(grace):
	}
}
