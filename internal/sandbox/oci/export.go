package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const exportTime = 2 * time.Minute

// Export implements [sandbox.Sandbox]. A change over the limits is an error of class
// [task.Invalid].
func (s *box) Export(ctx context.Context, limits sandbox.ExportLimits) (sandbox.Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.destroyed {
		return sandbox.Manifest{}, &task.Error{Class: task.NotFound, Msg: "sandbox " + s.rec.ID + " is destroyed"}
	}
	if _, err := s.r.do(ctx, order{Do: doHasFiles, Rec: s.rec}); err != nil {
		return sandbox.Manifest{}, &task.Error{Class: task.NotFound, Msg: "the files of sandbox " + s.rec.ID + " are lost", Err: err}
	}
	if err := s.r.prepare(ctx); err != nil {
		return sandbox.Manifest{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, exportTime)
	defer cancel()
	if len(s.group().pids()) > 0 {
		goOn, err := s.still(ctx)
		if err != nil {
			return sandbox.Manifest{}, err
		}
		defer goOn()
	}
	var left []string
	x, err := s.readOut(ctx, limits, nil)
	var limit *guest.ExportLimitError
	if errors.As(err, &limit) && limits.Ignored != nil {
		if left, err = s.ignored(ctx, limits); err == nil {
			x, err = s.readOut(ctx, limits, left)
		}
	}
	if errors.As(err, &limit) {
		return sandbox.Manifest{}, &task.Error{Class: task.Invalid, Msg: "the change is too large to export", Fix: "make a smaller change or raise the limit", Err: err}
	}
	if err != nil {
		return sandbox.Manifest{}, err
	}
	m := sandbox.Manifest{Skipped: x.Skipped, Left: left}
	for _, e := range x.Entries {
		m.Entries = append(m.Entries, sandbox.Entry(e))
	}
	return m, nil
}

// ignored lists the names of the change and asks which of them to leave out.
func (s *box) ignored(ctx context.Context, limits sandbox.ExportLimits) (left []string, err error) {
	var names []string
	if err := s.exporter(ctx, []string{"--names"}, func(stream io.ReadWriter) (err error) {
		names, err = guest.DecodeNames(stream)
		return err
	}); err != nil {
		return nil, err
	}
	all, err := limits.Ignored(ctx, names)
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	for _, p := range all { // sorted: what lies below a directory follows it
		if n := len(left); n > 0 && strings.HasSuffix(left[n-1], "/") && strings.HasPrefix(p, left[n-1]) {
			continue
		}
		left = append(left, p)
	}
	return left, nil
}

// readOut runs the exporter and decodes what it says.
func (s *box) readOut(ctx context.Context, limits sandbox.ExportLimits, left []string) (x guest.Export, err error) {
	args := []string{"--files", strconv.Itoa(limits.Files), "--bytes", strconv.FormatInt(limits.Bytes, 10)}
	if left != nil {
		args = append(args, "--leave")
	}
	err = s.exporter(ctx, args, func(stream io.ReadWriter) (err error) {
		if left != nil {
			if err := guest.WriteLeave(stream, left); err != nil {
				return err
			}
		}
		x, err = guest.DecodeExport(stream, limits.Files, limits.Bytes)
		return err
	})
	return x, err
}

// exporter runs the exporter with further arguments and lets talk read what it says.
func (s *box) exporter(ctx context.Context, args []string, talk func(io.ReadWriter) error) (err error) {
	clear := order{Do: doUnread, Rec: s.rec}
	if _, err := s.r.do(ctx, clear); err != nil { // of an export that a dead worker left
		return err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		_, left := s.r.do(clean, clear)
		err = errors.Join(err, left)
	}()
	if _, err := s.r.do(ctx, order{Do: doReader, Rec: s.rec, Args: args}); err != nil {
		return err
	}
	stream, stderr, err := s.r.start(ctx, s.rec.ID+"-x", s.path(dirX+"-bundle"))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	defer stop()
	defer stream.Close()
	err = talk(stream)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var limit *guest.ExportLimitError
	if err != nil && !errors.As(err, &limit) {
		err = fmt.Errorf("export sandbox %s: %w%s", s.rec.ID, err, stderr.suffix())
	}
	return err
}

// exportRoot builds the exporter's root: its binary and the three trees, all read-only.
func (s *box) exportRoot(args []string) error {
	_, guest, err := s.r.share()
	if err != nil {
		return err
	}
	root := s.path(dirX)
	if err := os.Mkdir(root, 0o755); err != nil {
		return refused("export", "", err)
	}
	if err := mountTmpfs(root, 1<<20, 256, "755"); err != nil {
		return refused("export", "", err)
	}
	for _, d := range []string{"proc", "dev", "export/lower", "export/upper", "export/merged", ".daybreak"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return refused("export", "", err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, guestPath), nil, 0o644); err != nil {
		return refused("export", "", err)
	}
	for _, b := range []struct{ src, dst string }{
		{guest, guestPath},
		{s.workUpper(), "export/upper"},
		{s.path(dirRoot, sandbox.WorkDir), "export/merged"},
	} {
		if err := attach(b.src, filepath.Join(root, b.dst), attrRead, -1, false); err != nil {
			return refused("export", "", err)
		}
	}
	if err := s.r.stand.mountUnion(filepath.Join(root, "export/lower"), s.workLowers()); err != nil {
		return refused("export", "", err)
	}
	conf := ociSpec(container{
		engine: s.r.engine,
		root:   root, cgroup: s.rec.Cgroup + "-x", stand: s.r.stand, idBase: s.rec.IDBase, uid: 0,
		args: append([]string{
			guestPath, "export", "--lower", "/export/lower", "--upper", "/export/upper", "--merged", "/export/merged",
		}, args...),
		// Files that their owner may not read are part of the change too.
		env: []string{"PATH=/"}, cwd: "/", caps: []string{"CAP_DAC_READ_SEARCH"},
		limits:  sandbox.Limits{Memory: 1 << 30, Pids: 64, CPU: 1},
		swap:    s.r.groups.swapAccounting(),
		noFiles: noFiles(),
	})
	return refused("export", "", writeBundle(s.path(dirX+"-bundle"), conf))
}

func (s *box) clearExporter(ctx context.Context) error {
	if err := s.exportGroup().kill(ctx); err != nil {
		return err
	}
	if err := s.r.forget(s.rec.ID + "-x"); err != nil {
		return err
	}
	if err := s.exportGroup().remove(ctx); err != nil {
		return err
	}
	if err := unmountBelow(s.path(dirX)); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(s.path(dirX)), os.RemoveAll(s.path(dirX+"-bundle")))
}
