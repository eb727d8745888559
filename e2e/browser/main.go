// SPDX-License-Identifier: Apache-2.0

// Command browser drives a headless Chromium for tests. It reads one command a line from its
// standard input, in JSON, and answers each with a line:
//
//	{"open":"http://127.0.0.1:1234/"}       load a page
//	{"wait":"document.title","seconds":2}   evaluate until the value is true
//	{"eval":"location.hash"}                evaluate once
//	{"keys":"some text"}                    type
//	{"key":"Tab"}                           press a key that writes nothing
//	{"width":1280,"height":800}             resize the window
//	{"theme":"dark"}                        have the system prefer a theme
//	{"picture":"page.png"}                  write what the window shows
//	{"complaints":true}                     what the console has said that is wrong
//
// It is a module of its own, so that what it needs does not become the product's.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: browser CHROMIUM")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
}

// command is one line of the input. The first field that is set says what is done.
type command struct {
	Open, Eval, Wait, Keys, Key, Theme, Picture string
	Seconds                                     float64
	Width, Height                               int64
	Complaints                                  bool
}

// answer is one line of the output.
type answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	// Milliseconds is how long the command took.
	Milliseconds int64  `json:"milliseconds"`
	Error        string `json:"error,omitempty"`
}

// run serves commands until the input ends.
func run(chromium string) error {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, closeTab := chromedp.NewContext(ctx)
	defer closeTab()
	if _, err := chromedp.Run(ctx, chromedp.Navigate("about:blank")); err != nil {
		return fmt.Errorf("start %s: %w", chromium, err)
	}
	w := &window{ctx: ctx}
	go w.listen()
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var c command
		a, begun := answer{}, time.Now()
		err := json.Unmarshal(in.Bytes(), &c)
		if err == nil {
			a.Value, err = w.do(&c)
		}
		if err != nil {
			a.Error = err.Error()
		}
		a.Milliseconds = time.Since(begun).Milliseconds()
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return in.Err()
}

// window is the one tab.
type window struct {
	ctx context.Context

	mu         sync.Mutex
	complaints []string
	givenUp    int // requests, for networkChanged
}

// networkChanged is what Chromium says when it gives requests up because an interface of the
// machine came or went, whatever they went through. With each pod of a cluster here one does.
const networkChanged = "net::ERR_NETWORK_CHANGED"

// listen collects what the console says that is wrong: errors, exceptions, refusals of the policy.
func (w *window) listen() {
	for m, err := range chromedp.Console(w.ctx) {
		if err != nil {
			return
		}
		if m.IsException() || m.Type == "error" || m.Source == "security" {
			w.take(m.String())
		}
	}
}

func (w *window) take(complaint string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(complaint, networkChanged) {
		w.givenUp++
		return
	}
	w.complaints = append(w.complaints, complaint)
}

// open loads a page, again if parts of it were given up.
func (w *window) open(ctx context.Context, url string) error {
	givenUp := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.givenUp
	}
	for {
		before := givenUp()
		err := chromedp.Do(ctx, chromedp.Navigate(url))
		changed := givenUp() > before || err != nil && strings.Contains(err.Error(), networkChanged)
		if !changed || ctx.Err() != nil {
			return err
		}
	}
}

func (w *window) do(c *command) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	switch {
	case c.Open != "":
		return nil, w.open(ctx, c.Open)
	case c.Eval != "":
		return eval(ctx, c.Eval)
	case c.Wait != "":
		return wait(ctx, c.Wait, time.Duration(c.Seconds*float64(time.Second)))
	case c.Keys != "":
		return nil, chromedp.Do(ctx, chromedp.KeyEvent(c.Keys))
	case c.Key != "":
		key, known := named()[c.Key]
		if !known {
			return nil, fmt.Errorf("no key is called %q", c.Key)
		}
		return nil, chromedp.Do(ctx, chromedp.KeyEvent(key))
	case c.Width > 0:
		return nil, chromedp.Do(ctx, chromedp.EmulateViewport(c.Width, c.Height))
	case c.Theme != "":
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: c.Theme}}})
		return nil, err
	case c.Picture != "":
		png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			return nil, err
		}
		return nil, os.WriteFile(c.Picture, png, 0o644)
	case c.Complaints:
		w.mu.Lock()
		defer w.mu.Unlock()
		return json.Marshal(w.complaints)
	}
	return nil, errors.New("this command says nothing to do")
}

// named are the keys that write nothing.
func named() map[string]string {
	return map[string]string{
		"Tab": kb.Tab, "Enter": kb.Enter, "Escape": kb.Escape, "Home": kb.Home, "End": kb.End,
		"ArrowDown": kb.ArrowDown, "ArrowUp": kb.ArrowUp, "ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight,
	}
}

// eval evaluates an expression, and waits for a promise.
func eval(ctx context.Context, expression string) (json.RawMessage, error) {
	// Undefined has no JSON.
	text := fmt.Sprintf("Promise.resolve(%s).then((v) => v === undefined ? null : v)", expression)
	value, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](text, chromedp.EvalAwaitPromise))
	return json.RawMessage(value), err
}

// wait evaluates an expression until its value counts as true.
func wait(ctx context.Context, expression string, limit time.Duration) (json.RawMessage, error) {
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		value, err := eval(ctx, expression)
		switch text := string(value); {
		case err != nil:
			return nil, err
		case text != "null" && text != "false" && text != "0" && text != `""`:
			return value, nil
		case time.Now().After(end):
			return value, fmt.Errorf("%s is not true after %v", expression, limit)
		}
	}
}
