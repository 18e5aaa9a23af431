package oci

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A disk that fills is looked at long before it is time to.
func TestRestEndsWhenTheDiskFills(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	before := roomAt(dir)
	if before.bytes == 0 {
		t.Fatal("the room on the disk is not known")
	}
	go func() { _ = os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 64<<20), 0o600) }()
	if !rest(ctx, dir, before, 16<<20, 0, time.Hour) {
		t.Error("48 MiB over what was left were not noticed")
	}
	if !rest(ctx, dir, roomAt(dir), 1<<60, 0, time.Millisecond) {
		t.Error("it does not end in time")
	}
	cancel()
	if rest(ctx, dir, before, 1<<60, 0, time.Hour) {
		t.Error("it ends as if it was time to look")
	}
}

func TestRoomCountsFiles(t *testing.T) {
	if n := (room{100, 1000}).lost(room{100, 900}); n != 100*inodeBytes {
		t.Errorf("a hundred files count as %d bytes", n)
	}
	if n := (room{5000, 10}).lost(room{1000, 20}); n != 4000 {
		t.Errorf("%d", n)
	}
}
