package guest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func frame(t testing.TB, h header, body string) []byte {
	t.Helper()
	b, err := appendFrame(nil, h, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func raw(headLen, bodyLen uint32, rest string) []byte {
	b := binary.BigEndian.AppendUint32(nil, headLen)
	b = binary.BigEndian.AppendUint32(b, bodyLen)
	return append(b, rest...)
}

func TestFramesComeBackAsTheyWereSent(t *testing.T) {
	for _, size := range []int{0, 1, maxBody - 1, maxBody, maxBody + 1, 3*maxBody + 5} {
		body := bytes.Repeat([]byte{'x'}, size)
		var wire bytes.Buffer
		if err := eachFrame(header{ID: 7, Op: opExec}, body, func(b []byte) error { wire.Write(b); return nil }); err != nil {
			t.Fatal(err)
		}
		r := &frameReader{r: &wire}
		var got []byte
		for {
			h, part, err := r.next()
			if err != nil || h.ID != 7 || h.Op != opExec {
				t.Fatalf("%d: %+v, %v", size, h, err)
			}
			got = append(got, part...)
			if !h.More {
				break
			}
		}
		if !bytes.Equal(got, body) {
			t.Errorf("%d bytes came back as %d", size, len(got))
		}
		if _, _, err := r.next(); err != io.EOF {
			t.Errorf("after the last frame: %v", err)
		}
	}
}

// badFrames are violations that either end must refuse.
func badFrames(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"oversize header":      raw(maxHeader+1, 0, ""),
		"oversize body":        raw(2, maxBody+1, "{}"),
		"largest lengths":      raw(1<<32-1, 1<<32-1, ""),
		"no header":            raw(0, 0, ""),
		"header is no JSON":    raw(5, 0, "hello"),
		"unknown header field": raw(8, 0, `{"id2":1`+"}")[:16],
		"two headers":          raw(16, 0, `{"id":1}{"id":2}`),
		"cut in a header":      raw(100, 0, `{"id":`),
		"cut in a body":        frame(t, header{ID: 1, Op: opReply}, "abcdef")[:30],
		"text":                 []byte("Segmentation fault (core dumped)\n"),
		"cut in the lengths":   {0, 0},
	}
}

// play answers a client by hand: the greeting, then whatever script writes.
func play(t *testing.T, script func(conn net.Conn, first header)) (*Client, error) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { there.Close() })
	go func() {
		there.Write(frame(t, header{Op: opHello, Version: ProtocolVersion}, ""))
		h, _, err := (&frameReader{r: there}).next()
		if err == nil {
			// What else the client sends is not read by anybody in these tests.
			go io.Copy(io.Discard, there)
			script(there, h)
		}
	}()
	c, err := NewClient(t.Context(), here)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func TestClientClosesOnTheFirstViolation_GW10(t *testing.T) {
	cases := badFrames(t)
	cases["unknown id"] = frame(t, header{ID: 999, Op: opReply}, "{}")
	cases["not a reply"] = frame(t, header{ID: 1, Op: opExec}, "{}")
	cases["greeting again"] = frame(t, header{Op: opHello, Version: ProtocolVersion}, "")
	cases["empty part"] = frame(t, header{ID: 1, Op: opReply, More: true}, "")
	cases["error with a result"] = frame(t, header{ID: 1, Op: opReply, Error: "x"}, "{}")
	cases["result of another shape"] = frame(t, header{ID: 1, Op: opReply}, `{"kind":7}`)
	cases["result is no JSON"] = frame(t, header{ID: 1, Op: opReply}, "\x00\x01")
	for name, bytes := range cases {
		t.Run(name, func(t *testing.T) {
			c, err := play(t, func(conn net.Conn, h header) {
				conn.Write(bytes)
				conn.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Read(t.Context(), ReadRequest{Path: "x"})
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
			<-c.Done()
			if _, again := c.Read(t.Context(), ReadRequest{Path: "x"}); again == nil || again.Error() != c.Err().Error() {
				t.Errorf("a later call: %v, want %v", again, c.Err())
			}
		})
	}
}

func TestClientRefusesADuplicateReply_GW10(t *testing.T) {
	c, err := play(t, func(conn net.Conn, h header) {
		conn.Write(frame(t, header{ID: h.ID, Op: opReply}, `{"total":1}`))
		conn.Write(frame(t, header{ID: h.ID, Op: opReply}, `{"total":2}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Read(t.Context(), ReadRequest{}); err != nil || r.Total != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	<-c.Done()
	if err := c.Err(); !errors.Is(err, errFrame) {
		t.Errorf("got %v", err)
	}
}

func TestClientRefusesAWrongGreeting(t *testing.T) {
	for want, hello := range map[string]header{
		fmt.Sprintf("version %d", ProtocolVersion+1): {Op: opHello, Version: ProtocolVersion + 1},
		"no greeting": {ID: 1, Op: opReply},
	} {
		here, there := net.Pipe()
		go there.Write(frame(t, hello, ""))
		if _, err := NewClient(t.Context(), here); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
		there.Close()
	}
	here, there := net.Pipe()
	defer there.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := NewClient(ctx, here); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent guest: %v", err)
	}
}

func TestClientMemoryStaysFlatUnderAFlood_GW10(t *testing.T) {
	sent := make(chan int64, 1)
	c, err := play(t, func(conn net.Conn, h header) {
		part := frame(t, header{ID: h.ID, Op: opReply, More: true}, strings.Repeat("[", maxBody))
		n := int64(0)
		for range 4000 { // a gigabyte, if the client took it
			w, err := conn.Write(part)
			n += int64(w)
			if err != nil {
				break
			}
		}
		sent <- n
	})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err = c.Read(t.Context(), ReadRequest{})
	if !errors.Is(err, errFrame) {
		t.Errorf("got %v", err)
	}
	if n := <-sent; n > 2*maxReply {
		t.Errorf("the client took %d bytes", n)
	}
	runtime.ReadMemStats(&after)
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 8*maxReply {
		t.Errorf("%d bytes were allocated", grew)
	}
}

func TestCancelledCallSurvivesALateReply_GW10(t *testing.T) {
	cancelled := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	here, there := net.Pipe()
	go func() {
		there.Write(frame(t, header{Op: opHello, Version: ProtocolVersion}, ""))
		r := &frameReader{r: there}
		h, _, _ := r.next()
		cancel()
		k, _, _ := r.next()
		if k.Op != opCancel || k.ID != h.ID {
			t.Errorf("got %+v", k)
		}
		there.Write(frame(t, header{ID: h.ID, Op: opReply}, `{"total":1}`))
		close(cancelled)
		h, _, _ = r.next()
		there.Write(frame(t, header{ID: h.ID, Op: opReply}, `{"total":2}`))
	}()
	c, err := NewClient(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(ctx, ReadRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-cancelled
	if r, err := c.Read(t.Context(), ReadRequest{}); err != nil || r.Total != 2 {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestServerEndsOnBadFrames(t *testing.T) {
	cases := badFrames(t)
	cases["id used twice"] = append(frame(t, header{ID: 1, Op: opRead, More: true}, "x"), frame(t, header{ID: 1, Op: opEdit}, "y")...)
	for name, in := range cases {
		t.Run(name, func(t *testing.T) {
			err := Serve(t.Context(), bytes.NewReader(in), io.Discard, ServerOptions{Root: t.TempDir()})
			if !errors.Is(err, errFrame) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestServerAnswersBadRequestsWithoutEnding(t *testing.T) {
	var in bytes.Buffer
	in.Write(frame(t, header{ID: 1, Op: "dance"}, ""))
	in.Write(frame(t, header{ID: 2, Op: opRead}, "{{"))
	in.Write(frame(t, header{ID: 3, Op: opCancel}, ""))
	in.Write(frame(t, header{ID: 4, Op: opPing}, ""))
	var out bytes.Buffer
	if err := Serve(t.Context(), &in, &out, ServerOptions{Root: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	got := make(map[uint64]string)
	for r := (&frameReader{r: &out}); ; {
		h, _, err := r.next()
		if err != nil {
			break
		}
		got[h.ID] = h.Error
	}
	if len(got) != 4 || !strings.Contains(got[1], "unknown operation") || !strings.Contains(got[2], "bad request") || got[4] != "" {
		t.Errorf("got %v", got)
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Serve(context.Background(), there, there, ServerOptions{Root: t.TempDir(), LogDir: t.TempDir()})
	}()
	c, err := NewClient(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 2 * maxCalls {
		wg.Go(func() {
			name := fmt.Sprintf("f%d", i)
			content := []byte(strings.Repeat(name, rand.IntN(100_000)))
			if r, err := c.Write(t.Context(), WriteRequest{Path: name, Content: content}); err != nil || !r.OK {
				t.Errorf("%+v, %v", r, err)
				return
			}
			if got, _, err := c.Fetch(t.Context(), name, 1<<30); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: %d bytes came back of %d: %v", name, len(got), len(content), err)
			}
		})
	}
	wg.Wait()
	c.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func FuzzFrameReader(f *testing.F) {
	for _, b := range badFrames(f) {
		f.Add(b)
	}
	f.Add(frame(f, header{ID: 1, Op: opReply, More: true}, "abc"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := &frameReader{r: bytes.NewReader(in)}
		for {
			h, body, err := r.next()
			if err != nil {
				if err != io.EOF && !errors.Is(err, errFrame) {
					t.Fatalf("an error of another kind: %v", err)
				}
				return
			}
			if len(body) > maxBody {
				t.Fatal("oversize body")
			}
			again, err := appendFrame(nil, h, body)
			if err != nil {
				// A header may grow past its limit when its error text is escaped anew.
				continue
			}
			if g, b, err := (&frameReader{r: bytes.NewReader(again)}).next(); err != nil || g.ID != h.ID || g.Op != h.Op || !bytes.Equal(b, body) {
				t.Fatalf("%+v came back as %+v, %v", h, g, err)
			}
		}
	})
}

// FuzzClient lets a hostile guest say anything.
func FuzzClient(f *testing.F) {
	hello := frame(f, header{Op: opHello, Version: ProtocolVersion}, "")
	f.Add(hello)
	f.Add(append(bytes.Clone(hello), frame(f, header{ID: 1, Op: opReply}, `{"total":3}`)...))
	f.Add(append(bytes.Clone(hello), frame(f, header{ID: 1, Op: opReply, Error: "no"}, "")...))
	for _, b := range badFrames(f) {
		f.Add(append(bytes.Clone(hello), b...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		here, there := net.Pipe()
		go func() {
			go io.Copy(io.Discard, there)
			there.Write(in)
			there.Close()
		}()
		c, err := NewClient(t.Context(), here)
		if err != nil {
			return
		}
		if _, err := c.Read(t.Context(), ReadRequest{}); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %q", err)
		}
		c.Close()
		<-c.Done()
	})
}

// FuzzServer lets a hostile worker say anything but run commands.
func FuzzServer(f *testing.F) {
	f.Add(frame(f, header{ID: 1, Op: opRead}, `{"path":"a"}`))
	f.Add(frame(f, header{ID: 1, Op: opEdit}, `{"path":"a","old":"YQ=="}`))
	f.Add(frame(f, header{ID: 1, Op: opFetch}, `{"path":"a","max":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		if bytes.Contains(in, []byte("exec")) || bytes.Contains(in, []byte("search")) {
			return
		}
		_ = Serve(t.Context(), bytes.NewReader(in), io.Discard, ServerOptions{Root: t.TempDir()})
	})
}
