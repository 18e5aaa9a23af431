package guest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// trees lays out the three trees of an overlay by hand, so that the walker is tested without
// mounts. Values are file texts; "->x" is a link, "fifo" a fifo, "dir" an empty directory.
func trees(t *testing.T, lower, upper, merged map[string]string) ExportOptions {
	t.Helper()
	o := ExportOptions{}
	for name, files := range map[*string]map[string]string{&o.Lower: lower, &o.Upper: upper, &o.Merged: merged} {
		*name = t.TempDir()
		for path, text := range files {
			p := filepath.Join(*name, path)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			var err error
			switch {
			case text == "fifo":
				err = unix.Mkfifo(p, 0o644)
			case text == "dir":
				err = os.MkdirAll(p, 0o755)
			case strings.HasPrefix(text, "->"):
				err = os.Symlink(text[2:], p)
			default:
				err = os.WriteFile(p, []byte(text), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return o
}

func exportRoundTrip(t *testing.T, o ExportOptions) (Export, error) {
	t.Helper()
	var buf bytes.Buffer
	served := ExportServe(&buf, o)
	x, err := DecodeExport(&buf, o.Files, o.Bytes)
	if served != nil && err == nil {
		t.Errorf("the exporter failed and the decoder did not see it: %v", served)
	}
	return x, err
}

func TestExportRoundTrip(t *testing.T) {
	o := trees(t,
		map[string]string{"a": "1", "same": "s", "d/x": "x", "d/y": "y", "gone/z": "z", "untouched": "u"},
		map[string]string{"a": "2", "same": "s", "d/x": "new", "n/l": "->/etc/passwd", "n/p": "fifo", ".git": "x", "gone": "fifo"},
		map[string]string{"a": "2", "same": "s", "d/x": "new", "n/l": "->/etc/passwd", "n/p": "fifo", ".git": "x", "untouched": "u"},
	)
	got, err := exportRoundTrip(t, o)
	if err != nil {
		t.Fatal(err)
	}
	want := Export{
		Entries: []ExportEntry{
			{Path: "a", Mode: 0o100644, Content: []byte("2")},
			{Path: "d/x", Mode: 0o100644, Content: []byte("new")},
			{Path: "d/y", Deleted: true},
			{Path: "gone/z", Deleted: true},
			{Path: "n/l", Mode: 0o120000, Content: []byte("/etc/passwd")},
		},
		Skipped: []string{"n/p"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("export (-want +got):\n%s", diff)
	}
}

func TestExportCaps(t *testing.T) {
	files := map[string]string{"a": "12345", "b": "12345"}
	o := trees(t, nil, files, files)
	for _, c := range []struct {
		files int
		bytes int64
		fits  bool
	}{{2, 10, true}, {1, 10, false}, {2, 9, false}, {2, 4, false}} {
		o.Files, o.Bytes = c.files, c.bytes
		_, err := exportRoundTrip(t, o)
		var limit *ExportLimitError
		if c.fits != (err == nil) || !c.fits && !errors.As(err, &limit) {
			t.Errorf("%d files, %d bytes: %v", c.files, c.bytes, err)
		}
	}
	// The decoder holds the caps against an exporter that does not.
	o.Files, o.Bytes = 0, 0
	var buf bytes.Buffer
	if err := ExportServe(&buf, o); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files int
		bytes int64
	}{{1, 100}, {10, 9}} {
		var limit *ExportLimitError
		if _, err := DecodeExport(bytes.NewReader(buf.Bytes()), c.files, c.bytes); !errors.As(err, &limit) {
			t.Errorf("decoder with %+v: %v", c, err)
		}
	}
}

func TestExportMissingTree(t *testing.T) {
	o := trees(t, nil, nil, nil)
	o.Merged = filepath.Join(o.Merged, "missing")
	if _, err := exportRoundTrip(t, o); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("error %v, want the exporter's own", err)
	}
}

func TestDecodeExportRefuses_EXP20(t *testing.T) {
	entry := "f\x01a\x00\x00\x81\xa4\x01x"
	for name, stream := range map[string]string{
		"empty":              "",
		"other magic":        "daybreak-export 2\nE\x00",
		"cut after magic":    exportMagic,
		"cut in path":        exportMagic + "d\x05ab",
		"cut in content":     exportMagic + "f\x01a\x00\x00\x81\xa4\x09x",
		"no end":             exportMagic + entry,
		"wrong count":        exportMagic + entry + "E\x02",
		"unknown record":     exportMagic + "z\x01aE\x01",
		"same path twice":    exportMagic + entry + "d\x01a" + "E\x02",
		"empty path":         exportMagic + "d\x00E\x01",
		"absolute path":      exportMagic + "d\x02/aE\x01",
		"parent":             exportMagic + "d\x04../aE\x01",
		"parent inside":      exportMagic + "d\x06a/../bE\x01",
		"dot":                exportMagic + "d\x03./aE\x01",
		"trailing slash":     exportMagic + "d\x02a/E\x01",
		"NUL":                exportMagic + "d\x02a\x00E\x01",
		"submodule":          exportMagic + "f\x01a\x00\x00\xe0\x00\x01xE\x01",
		"set-user-id":        exportMagic + "f\x01a\x00\x00\x89\xed\x01xE\x01",
		"huge length":        exportMagic + "f\x01a\x00\x00\x81\xa4\xff\xff\xff\xff\xff\xff\xff\xff\x7fx",
		"length over 64 bit": exportMagic + "d\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7fx",
		"failure":            exportMagic + "F\x04oops",
		"a zip archive":      "PK\x03\x04\x14\x00\x00\x00\x08\x00../../evil",
		"a tar archive":      "../../evil" + strings.Repeat("\x00", 502),
		"a gzip stream":      "\x1f\x8b\x08\x00\x00\x00\x00\x00",
		"deeper than a path": exportMagic + "d\x80\x80\x01" + strings.Repeat("a/", 8192) + "E\x01",
		"2^63 bytes":         exportMagic + "f\x01a\x00\x00\x81\xa4\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01x",
		"a file as parent":   exportMagic + entry + "f\x03a//\x00\x00\x81\xa4\x01xE\x02",
	} {
		if x, err := DecodeExport(strings.NewReader(stream), 0, 0); err == nil {
			t.Errorf("%s: accepted as %+v", name, x)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error of several lines: %q", name, err)
		}
	}
	if _, err := DecodeExport(strings.NewReader(exportMagic+entry+"E\x01"), 0, 0); err != nil {
		t.Errorf("a good stream: %v", err)
	}
}

func FuzzDecodeExport(f *testing.F) {
	f.Add([]byte(exportMagic + "f\x01a\x00\x00\x81\xa4\x01xd\x01bs\x01cE\x03"))
	f.Add([]byte(exportMagic + "L\x03big"))
	f.Fuzz(func(t *testing.T, b []byte) {
		const files, size = 8, 1 << 10
		x, err := DecodeExport(bytes.NewReader(b), files, size)
		if err != nil {
			return
		}
		if len(x.Entries) > files || len(x.Entries)+len(x.Skipped) > len(b) {
			t.Fatalf("%d entries from %d bytes", len(x.Entries), len(b))
		}
		total, last := 0, ""
		for _, e := range x.Entries {
			total += len(e.Content)
			if e.Path <= last || e.Deleted != (e.Mode == 0) || !filepath.IsLocal(e.Path) {
				t.Fatalf("entry %+v after %q", e, last)
			}
			last = e.Path
		}
		if total > size {
			t.Fatalf("%d bytes of content", total)
		}
	})
}

// TestExportLeavesOutWhatIsNamed: the names of a change come first, and what is named back is
// not looked at again.
func TestExportLeavesOutWhatIsNamed(t *testing.T) {
	changed := map[string]string{"a": "2", "old/new": "n", "out/deep/x": "big", "out/y": "big", "l": "->a"}
	o := trees(t, map[string]string{"a": "1", "old/z": "z"}, changed,
		map[string]string{"a": "2", "old/new": "n", "old/z": "z", "out/deep/x": "big", "out/y": "big", "l": "->a"})
	names := o
	names.Names = true
	var buf bytes.Buffer
	if err := ExportServe(&buf, names); err != nil {
		t.Fatal(err)
	}
	got, err := DecodeNames(bytes.NewReader(buf.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "l", "old/new", "out/", "out/deep/", "out/deep/x", "out/y"}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if _, err := DecodeExport(bytes.NewReader(buf.Bytes()), 0, 0); err == nil {
		t.Error("a stream of names was taken for an export")
	}
	var list bytes.Buffer
	if err := WriteLeave(&list, []string{"out/", "l"}); err != nil {
		t.Fatal(err)
	}
	if o.Leave, err = ReadLeave(&list); err != nil {
		t.Fatal(err)
	}
	x, err := exportRoundTrip(t, o)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, e := range x.Entries {
		paths = append(paths, e.Path)
	}
	if diff := cmp.Diff([]string{"a", "old/new"}, paths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	if _, err := ReadLeave(strings.NewReader("\xff\xff\xff\xff\xff\xff\xff\xff")); err == nil {
		t.Error("a list of absurd length was taken")
	}
}
