package guest

import (
	"context"
	"io"
)

// Client is the worker's end of the wire. It is safe for concurrent use.
type Client struct{ conn io.ReadWriteCloser }

// NewClient starts reading frames from conn and waits for the guest's greeting.
func NewClient(ctx context.Context, conn io.ReadWriteCloser) (*Client, error) {
	return &Client{conn}, nil
}

// Exec runs a command. It returns when the command ends, at once for a background command,
// or with ctx's error after killing the command when ctx is done.
func (c *Client) Exec(ctx context.Context, r ExecRequest) (ExecResult, error) { panic("helper") }

// Wait waits up to d for a background command (d in nanoseconds of time.Duration).
func (c *Client) Wait(ctx context.Context, proc int, d int64) (ExecResult, error) { panic("helper") }

// Kill ends a background command and its tree.
func (c *Client) Kill(ctx context.Context, proc int) (ExecResult, error) { panic("helper") }

// Read reads lines of a text file.
func (c *Client) Read(ctx context.Context, r ReadRequest) (ReadResult, error) { panic("helper") }

// Edit edits a file.
func (c *Client) Edit(ctx context.Context, r EditRequest) (EditResult, error) { panic("helper") }

// Write writes a file.
func (c *Client) Write(ctx context.Context, r WriteRequest) (EditResult, error) { panic("helper") }

// Search searches the work tree.
func (c *Client) Search(ctx context.Context, r SearchRequest) (SearchResult, error) { panic("helper") }

// Fetch returns up to max bytes of a regular file inside the sandbox. truncated is true when
// the file is longer.
func (c *Client) Fetch(ctx context.Context, path string, max int64) (data []byte, truncated bool, err error) {
	panic("helper")
}

// Close ends the conversation. The guest exits.
func (c *Client) Close() error { return c.conn.Close() }
