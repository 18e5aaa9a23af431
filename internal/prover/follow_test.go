package prover

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

// frame is one of the wire's.
type frame struct {
	ID      int    `json:"id"`
	Op      string `json:"op"`
	Version int    `json:"version,omitempty"`
}

func send(conn net.Conn, f frame, body string) error {
	head, err := json.Marshal(f)
	if err != nil {
		return err
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(len(head)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	_, err = conn.Write(append(append(b, head...), body...))
	return err
}

// neverEnding speaks for a sandbox whose command always runs. After so many answers it says nothing
// any more.
func neverEnding(conn net.Conn, answers int) error {
	err := send(conn, frame{Op: "hello", Version: guest.ProtocolVersion}, "")
	for err == nil {
		var f frame
		intro := make([]byte, 8)
		if _, err = io.ReadFull(conn, intro); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(intro)
		text := make([]byte, n+binary.BigEndian.Uint32(intro[4:]))
		if _, err = io.ReadFull(conn, text); err != nil {
			return err
		}
		if err = json.Unmarshal(text[:n], &f); err != nil || answers == 0 || f.Op == "cancel" {
			continue
		}
		answers--
		if f.Op == "wait" {
			time.Sleep(indexTick)
		}
		err = send(conn, frame{ID: f.ID, Op: "reply"}, `{"proc":1,"running":true}`)
	}
	return err
}

// A sandbox that does not keep to the time that it was given is not waited for.
func TestIndexingComesToAnEnd(t *testing.T) {
	for name, answers := range map[string]int{"it says nothing": 0, "it always runs": 1 << 30, "it falls silent": 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				ended := make(chan error)
				go func() { ended <- neverEnding(there, answers) }()
				g, err := guest.NewClient(t.Context(), here)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, err = follow(t.Context(), g, guest.ExecRequest{Argv: []string{"x"}, Timeout: time.Minute, Background: true}, func(string, int, int) {})
				if err == nil || !strings.Contains(err.Error(), "does not end") {
					t.Errorf("%v", err)
				}
				if took := time.Since(began); took < 2*time.Minute || took > 3*time.Minute {
					t.Errorf("it was given up after %s", took)
				}
				_ = g.Close()
				if err := <-ended; err == nil {
					t.Error("it was not hung up on")
				}
			})
		})
	}
}
