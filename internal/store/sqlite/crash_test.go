package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// childEnv makes the test binary a process that appends to the file it names.
const childEnv = "DAYBREAK_TEST_APPEND_TO"

// appendForever appends pairs to task 1 and prints the last seq of each acknowledged append,
// until it is killed.
func appendForever(path string) {
	ctx := context.Background()
	die := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	s, err := Open(ctx, path, Options{})
	die(err)
	l, err := s.Acquire(ctx, storetest.ID(1), strconv.Itoa(os.Getpid()), 1<<40, func(string) bool { return true })
	die(err)
	d, err := event.New(event.Noticed{Text: strings.Repeat("x", 3000)})
	die(err)
	for {
		got, err := s.Append(ctx, l, d, d)
		die(err)
		fmt.Println(got[1].Seq)
	}
}

// TestKilledInMidWrite_LOG03: whatever moment a writer dies at, the log is whole, both events of an
// append are there or neither, and nothing that was acknowledged is missing.
func TestKilledInMidWrite_LOG03(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daybreak.db")
	s := openAt(t, path)
	id := storetest.New(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, acks := range []int{1, 7, 40} {
		acked := killAfter(t, path, acks)
		s := openAt(t, path)
		events := storetest.Log(t, s, id)
		if n := int64(len(events)); n < acked || n%2 != 1 {
			t.Fatalf("killed after %d acknowledged events: %d are there", acked, n)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The dead process's lease is taken over and the log goes on.
		l, err := s.Acquire(t.Context(), id, "next", 1<<40, func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		d := storetest.Draft(t, event.RunStarted{Resumed: true})
		if _, err := s.Append(t.Context(), l, d, d); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killAfter starts a writer, kills it with SIGKILL after so many acknowledgements, and
// returns the last seq it acknowledged.
func killAfter(t *testing.T, path string, acks int) int64 {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var last int64
	for n, sc := 0, bufio.NewScanner(out); sc.Scan(); n++ {
		seq, err := strconv.ParseInt(sc.Text(), 10, 64)
		if err != nil {
			t.Errorf("writer: %s", sc.Text())
			break
		}
		last = seq
		if n+1 == acks {
			cmd.Process.Kill() // what is still in the pipe counts too
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	return last
}

// TestTwoProcesses: a command line reads the log and leaves a signal while a run writes.
func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daybreak.db")
	s := openAt(t, path)
	defer s.Close()
	id := storetest.New(t, s, 1)
	storetest.New(t, s, 2)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	sc := bufio.NewScanner(out)
	l2 := storetest.Lease(t, s, storetest.ID(2))
	for i := range 30 {
		if !sc.Scan() {
			t.Fatal("the writer ended")
		}
		acked, err := strconv.ParseInt(sc.Text(), 10, 64)
		if err != nil {
			t.Fatalf("writer: %s", sc.Text())
		}
		events, err := s.Events(t.Context(), id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(events)) < acked {
			t.Fatalf("acknowledged %d, another process sees %d", acked, len(events))
		}
		if err := event.VerifyChain(id, events); err != nil {
			t.Fatal(err)
		}
		if err := s.Signal(t.Context(), store.Signal{ID: fmt.Sprint(i), Task: id, Kind: "stop"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), l2, storetest.Draft(t, event.Noticed{Step: i})); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Signals(t.Context(), id); err != nil || len(got) != 30 {
		t.Fatalf("%d signals, %v", len(got), err)
	}
	_, err = s.Acquire(t.Context(), id, "me", 1<<40, nil)
	if task.ClassOf(err) != task.Conflict || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
		t.Fatalf("the other process's lease: %v", err)
	}
	if n := len(storetest.Log(t, s, storetest.ID(2))); n != 31 {
		t.Fatalf("%d events of the second task", n)
	}
}
