// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"

	"deviceshare/deviceplugin/modes/mps"
)

// patience bounds a question whose answer needs nothing to be done.
const patience = 5 * time.Second

// Client talks to the keeper of this node. It implements mps.Keeper.
type Client struct {
	Socket string
	// Directories is where this device plugin has the daemons' directories.
	Directories string
}

// Start implements mps.Keeper.
func (c Client) Start(ctx context.Context, d mps.Daemon) error {
	_, err := c.sendRequest(ctx, Request{Version: Version, Start: &Daemon{
		Device: d.Device, Directory: d.Dir, MultiUser: d.MultiUser, Partitioned: d.Partitioned,
	}})
	return err
}

// Ending implements mps.Keeper.
func (c Client) Ending(ctx context.Context, d mps.Daemon, pid int) (how string, known bool) {
	state, err := c.queryState(ctx)
	if err != nil {
		return "", false
	}
	for _, e := range state.Ended {
		if e.Device == d.Device && e.PID == pid {
			return e.How, true
		}
	}
	return "", false
}

// Check returns an error if the keeper cannot start daemons for this device plugin, with what
// an administrator can do about it.
func (c Client) Check(ctx context.Context) error {
	state, err := c.queryState(ctx)
	switch {
	case err != nil:
		return err
	case state.IsEnding:
		return errors.New("the keeper of MPS daemons on this node is being replaced, and waits for the end of the pods that have devices in mode mps")
	case state.Directories != c.Directories:
		return fmt.Errorf("the keeper of MPS daemons on this node has its directories below %s, and the device plugin below %s (--mps-root): delete the keeper's pod of this node",
			state.Directories, c.Directories)
	}
	return nil
}

func (c Client) queryState(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.sendRequest(ctx, Request{Version: Version})
}

func (c Client) sendRequest(ctx context.Context, r Request) (State, error) {
	text, err := c.exchangeLines(ctx, r.Encode())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return State{}, fmt.Errorf("no keeper of MPS daemons runs on this node: %w", err)
	}
	if err != nil {
		return State{}, fmt.Errorf("ask the keeper of MPS daemons: %w", err)
	}
	a, err := ReadAnswer(text)
	var other *VersionError
	switch {
	case errors.As(err, &other):
		return State{}, fmt.Errorf("the keeper of MPS daemons on this node is of another release: %w; delete its pod of this node", err)
	case err != nil:
		return State{}, fmt.Errorf("ask the keeper of MPS daemons: %w", err)
	case a.Refused != "":
		return State{}, fmt.Errorf("the keeper of MPS daemons on this node refuses: %s", a.Refused)
	}
	return *a.State, nil
}

// exchangeLines sends a line and returns the one that comes back.
func (c Client) exchangeLines(ctx context.Context, text []byte) ([]byte, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	// A context that ends breaks off whatever is under way.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(text); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	answer, err := bufio.NewReader(io.LimitReader(conn, maxAnswer+1)).ReadBytes('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("it answers %q: %w", answer[:min(len(answer), 100)], err), context.Cause(ctx))
	}
	return answer, nil
}
