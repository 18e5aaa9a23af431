package postgres

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/postgres/pgtest"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestServerAway: while the server cannot be reached, a write waits; when it is back the write
// is stored once, the watchers are woken, and the lease is as it was.
func TestServerAway(t *testing.T) {
	srv := pgtest.Start(t)
	s := openAt(t, srv.Database(t), Options{})
	id := storetest.New(t, s, 1)
	l := storetest.Lease(t, s, id)
	changed, err := s.Watch(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	srv.End(syscall.SIGQUIT) // as a crash
	done := make(chan error, 1)
	go func() {
		_, err := s.Append(context.Background(), l, storetest.Draft(t, event.Noticed{Text: "while it was away"}))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("the append ended although the server is away: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	srv.Begin(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := len(storetest.Log(t, s, id)); n != 2 {
		t.Fatalf("%d events", n)
	}
	select {
	case <-changed:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was woken")
	}
}

// testStopsInTransaction: a process that is stopped between two statements of a transaction does
// not keep its locks from the one that takes over.
func testStopsInTransaction(t *testing.T, srv *pgtest.Server) {
	s := openAt(t, srv.Database(t), Options{})
	id := storetest.New(t, s, 1)
	l := storetest.Lease(t, s, id)
	tx, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE tasks, events IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), l, storetest.Draft(t, event.Noticed{Text: "after it"})); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Fatal("the stopped one's transaction went through")
	}
}

// testAwayTooLong: a write that cannot be stored says so in time; a cancelled one at once.
func testAwayTooLong(t *testing.T, srv *pgtest.Server) {
	p := pgtest.NewProxy(t, srv)
	s := openAt(t, p.DSN(t, srv.Database(t)), Options{Patience: 200 * time.Millisecond})
	id := storetest.New(t, s, 1)
	l := storetest.Lease(t, s, id)
	p.Cut()
	_, err := s.Append(t.Context(), l, storetest.Draft(t, event.Noticed{}))
	var e *task.Error
	if !errors.As(err, &e) || e.Class != task.Unavailable || e.Fix == "" {
		t.Fatalf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("told to stop")
	cancel(why)
	if _, err := s.Append(ctx, l, storetest.Draft(t, event.Noticed{})); !errors.Is(err, why) {
		t.Fatalf("%v", err)
	}
	p.Mend()
	if n := len(storetest.Log(t, s, id)); n != 1 {
		t.Fatalf("%d events", n)
	}
}

// testCutAnywhere cuts the connection after every few bytes of an append in turn, also after
// the commit has left and before its answer came: the events are there once.
func testCutAnywhere(t *testing.T, srv *pgtest.Server) {
	direct := srv.Database(t)
	p := pgtest.NewProxy(t, srv)
	s := openAt(t, p.DSN(t, direct), Options{})
	id := storetest.New(t, s, 1)
	l := storetest.Lease(t, s, id)
	want := 1
	for after := 1; after < 1600; after += 60 {
		p.CutAfter(after)
		got, err := s.Append(t.Context(), l, storetest.Draft(t, event.Noticed{Step: after, Text: "first"}), storetest.Draft(t, event.Noticed{Step: after}))
		if err != nil || len(got) != 2 {
			t.Fatalf("cut after %d bytes: %d events, %v", after, len(got), err)
		}
		want += 2
		if err := s.Signal(t.Context(), store.Signal{ID: fmt.Sprint(after), Task: id, Kind: "steer"}); err != nil {
			t.Fatal(err)
		}
	}
	p.CutAfter(0)
	if n := len(storetest.Log(t, s, id)); n != want {
		t.Fatalf("%d events, want %d", n, want)
	}
}

// testCreateCut: the same for a task and its order.
func testCreateCut(t *testing.T, srv *pgtest.Server) {
	p := pgtest.NewProxy(t, srv)
	s := openAt(t, p.DSN(t, srv.Database(t)), Options{Queue: jobs{}})
	if _, err := s.pool.Exec(t.Context(), `CREATE TABLE test_jobs (id bigint GENERATED ALWAYS AS IDENTITY, task text, epoch bigint, priority int)`); err != nil {
		t.Fatal(err)
	}
	n := 0
	for after := 1; after < 2600; after += 130 {
		n++
		p.CutAfter(after)
		row := store.Task{ID: storetest.ID(n), Key: fmt.Sprint("key", n), Dispatch: true}
		if _, created, err := s.Create(t.Context(), row, []event.Draft{storetest.Draft(t, event.TaskCreated{})}); err != nil || !created {
			t.Fatalf("cut after %d bytes: created %v, %v", after, created, err)
		}
	}
	p.CutAfter(0)
	var tasks, orders int
	if err := s.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM tasks), (SELECT count(*) FROM test_jobs)`).Scan(&tasks, &orders); err != nil || tasks != n || orders != n {
		t.Fatalf("%d tasks, %d orders, want %d of each; %v", tasks, orders, n, err)
	}
}

// childEnv makes the test binary a process that appends to the store it names, and says what
// was acknowledged.
const childEnv = "DAYBREAK_TEST_APPEND_TO_POSTGRES"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childEnv); dsn != "" {
		appendForever(dsn)
	}
	os.Exit(m.Run())
}

func appendForever(dsn string) {
	ctx := context.Background()
	die := func(err error) {
		if err != nil {
			fmt.Println("error:", task.ClassOf(err), err)
			os.Exit(1)
		}
	}
	s, err := Open(ctx, dsn, Options{})
	die(err)
	l, err := s.Acquire(ctx, storetest.ID(1), "child", 500*time.Millisecond, nil)
	die(err)
	d, err := event.New(event.Noticed{Text: strings.Repeat("x", 1000)})
	die(err)
	for {
		got, err := s.Append(ctx, l, d, d)
		die(err)
		fmt.Println(got[1].Seq)
	}
}

// testZombieProcess stops a process that appends, takes its task when the lease has ended, and
// lets it go on: its next word is that it is stale, and it stored nothing since.
func testZombieProcess(t *testing.T, srv *pgtest.Server) {
	dsn := srv.Database(t)
	s := openAt(t, dsn, Options{})
	id := storetest.New(t, s, 1)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dsn)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	sc := bufio.NewScanner(out)
	for range 20 {
		if !sc.Scan() {
			t.Fatal("the writer ended")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var l store.Lease
	for end := time.Now().Add(30 * time.Second); ; {
		// A stop in the middle of a transaction keeps the row locked; the server would end it
		// with the connection. Here it is let go for a moment.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT FROM tasks FOR UPDATE NOWAIT`)
			return err
		})
		cancel()
		if err != nil {
			_ = cmd.Process.Signal(syscall.SIGCONT)
			_ = cmd.Process.Signal(syscall.SIGSTOP)
			continue
		}
		if l, err = s.Acquire(t.Context(), id, "next", time.Minute, nil); err == nil {
			break
		}
		if task.ClassOf(err) != task.Conflict || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if _, err := s.Append(t.Context(), l, storetest.Draft(t, event.RunStarted{Resumed: true})); err != nil {
		t.Fatal(err)
	}
	before := len(storetest.Log(t, s, id))
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	last := ""
	for sc.Scan() {
		last = sc.Text()
	}
	if !strings.HasPrefix(last, "error: stale") {
		t.Errorf("the zombie's last word: %s", last)
	}
	if n := len(storetest.Log(t, s, id)); n != before {
		t.Errorf("the zombie stored %d events", n-before)
	}
}
