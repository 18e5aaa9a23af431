package verify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// layerDigest names what a build left in a directory of the host: each path with its kind and
// permissions, what is in files and where links lead. Nobody writes there any more. False says
// that not all of it can be read.
func layerDigest(ctx context.Context, dir string) (string, bool) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", false
	}
	defer root.Close()
	h := sha256.New()
	fmt.Fprintln(h, "daybreak build")
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %o\n", p, fi.Mode())
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			to, err := root.Readlink(p)
			fmt.Fprintf(h, "%q\n", to)
			return err
		case fi.Mode().IsRegular():
			f, err := root.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()
			fmt.Fprintln(h, fi.Size())
			n, err := io.Copy(h, f)
			if err == nil && n != fi.Size() {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		return nil
	})
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), err == nil
}
