package live

import (
	"bytes"
	"fmt"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const crowd = 1000

// memoryInUse is what the process holds after a collection, in bytes: heap and stacks.
func memoryInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// watchCrowd lets a crowd watch one task over HTTP while n events of 2 KiB are written, and
// returns what that took, with the clients' side of it.
func watchCrowd(t testing.TB, n int) int64 {
	m := newMemory()
	m.append(1000, 2000)
	h := newHub(t, m, crowd, crowd)
	srv := httptest.NewServer(stream(h))
	defer srv.Close()
	before := memoryInUse()
	var connected, done sync.WaitGroup
	connected.Add(crowd)
	for range crowd {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 900\r\n\r\n")
		done.Go(func() {
			defer c.Close()
			buf := make([]byte, 4<<10)
			var tail []byte
			for last := 900; last < 1000+n; {
				k, err := c.Read(buf)
				if err != nil {
					t.Error(err)
					return
				}
				tail = append(tail, buf[:k]...)
				for {
					line, rest, ok := bytes.Cut(tail, []byte("\n"))
					if !ok {
						break
					}
					tail = rest
					if id, ok := strings.CutPrefix(string(bytes.TrimRight(line, "\r")), "id: "); ok {
						if last++; id != itoa(int64(last)) {
							t.Errorf("event %s follows %d", id, last-1)
							return
						}
						if last == 1000 {
							connected.Done()
						}
					}
				}
				tail = append([]byte{}, tail...)
			}
		})
	}
	connected.Wait()
	used := memoryInUse() - before
	for range n {
		m.append(1, 2000)
	}
	done.Wait()
	return max(used, memoryInUse()-before)
}

// TestCrowd: a thousand viewers of one task lose no event and take at most 200 MB.
func TestCrowd(t *testing.T) {
	used := watchCrowd(t, 50)
	t.Logf("%d viewers: %.1f MB", crowd, float64(used)/1e6)
	if used > 200e6 {
		t.Errorf("%d viewers take %d bytes", crowd, used)
	}
}

// BenchmarkCrowd is an event's way to a thousand viewers.
func BenchmarkCrowd(b *testing.B) {
	used := watchCrowd(b, b.N)
	b.ReportMetric(float64(used)/1e6, "MB")
}
