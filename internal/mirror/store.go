package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// store keeps verified package files by the SHA-256 of their bytes, and references from a
// package's key to the bytes. A reference also keeps which digest was promised for it: when
// a registry promises another one, the reference no longer answers.
type store struct {
	dir string
	tmp string // this process's own, below dir/tmp
	max int64
	now func() time.Time

	mu      sync.Mutex
	refs    map[string]*ref
	objects map[string]*object
	total   int64
	flight  map[string]*fill
	lock    *os.File // holds tmp
}

type ref struct {
	Key    string `json:"key"`
	Want   string `json:"want"` // the promised digest, with its algorithm
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	// Of an index: where it came from in the end, as what, and when.
	From    string    `json:"from,omitempty"`
	Type    string    `json:"type,omitempty"`
	Fetched time.Time `json:"fetched,omitzero"`
}

type object struct {
	size    int64
	used    time.Time
	keys    map[string]bool
	checked bool // its bytes were hashed since this process started
}

type fill struct {
	done chan struct{}
	err  error
}

// blob is an open verified file.
type blob struct {
	*os.File
	size   int64
	sha256 string
}

func openStore(dir string, limit int64, now func() time.Time) (*store, error) {
	s := &store{dir: dir, max: limit, now: now, refs: map[string]*ref{}, objects: map[string]*object{}, flight: map[string]*fill{}}
	for _, sub := range []string{"tmp", "refs", "objects"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, invalid("cannot make the store: %v", err)
		}
	}
	if err := s.claimTmp(); err != nil {
		return nil, invalid("cannot clear the store: %v", err)
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// claimTmp makes this process's own place for files under way, held by a lock, and removes those
// whose owner is gone: several processes may write one store.
func (s *store) claimTmp() error {
	dirs, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil {
		return err
	}
	for _, d := range dirs {
		name := filepath.Join(s.dir, "tmp", d.Name())
		f, err := os.Open(name)
		if err != nil {
			continue // another process was faster
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = os.RemoveAll(name)
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	for range 8 { // between making and locking it another process may take it for left behind
		if s.tmp, err = os.MkdirTemp(filepath.Join(s.dir, "tmp"), "p-"); err != nil {
			return err
		}
		if s.lock, err = os.Open(s.tmp); err != nil {
			continue
		}
		if err = unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			if _, err = os.Stat(s.tmp); err == nil {
				return nil
			}
		}
		_ = s.lock.Close() // nothing was written
	}
	return err
}

// close gives the process's own place back.
func (s *store) close() error {
	if s.lock == nil {
		return nil
	}
	return errors.Join(os.RemoveAll(s.tmp), s.lock.Close())
}

// load reads the references, oldest first is not needed: their times say when they were used.
func (s *store) load() error {
	entries, err := os.ReadDir(filepath.Join(s.dir, "refs"))
	if err != nil {
		return invalid("cannot read the store: %v", err)
	}
	for _, e := range entries {
		name := filepath.Join(s.dir, "refs", e.Name())
		r, used, err := readRef(name)
		if err != nil || e.Name() != hexSum(r.Key) {
			if err := os.Remove(name); err != nil {
				return invalid("cannot drop a broken reference: %v", err)
			}
			continue
		}
		if fi, err := os.Lstat(s.path(r.SHA256)); err != nil || !fi.Mode().IsRegular() || fi.Size() != r.Size {
			if err := os.Remove(name); err != nil {
				return invalid("cannot drop a broken reference: %v", err)
			}
			continue
		}
		s.link(r, used)
	}
	s.evict("")
	return nil
}

func readRef(name string) (*ref, time.Time, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	var r ref
	if err := json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(&r); err != nil {
		return nil, time.Time{}, err
	}
	if b, err := hex.DecodeString(r.SHA256); err != nil || len(b) != sha256.Size {
		return nil, time.Time{}, errors.New("no digest")
	}
	return &r, fi.ModTime(), nil
}

func hexSum(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }

func (s *store) path(sum string) string { return filepath.Join(s.dir, "objects", sum[:2], sum) }
func (s *store) refPath(key string) string {
	return filepath.Join(s.dir, "refs", hexSum(key))
}

func (s *store) link(r *ref, used time.Time) {
	if old := s.refs[r.Key]; old != nil && old.SHA256 != r.SHA256 {
		s.unlink(old)
	}
	o := s.objects[r.SHA256]
	if o == nil {
		o = &object{size: r.Size, keys: map[string]bool{}}
		s.objects[r.SHA256] = o
		s.total += r.Size
	}
	if used.After(o.used) {
		o.used = used
	}
	o.keys[r.Key] = true
	s.refs[r.Key] = r
}

// unlink forgets one reference, and the object when it was the last.
func (s *store) unlink(r *ref) {
	o := s.objects[r.SHA256]
	delete(s.refs, r.Key)
	_ = os.Remove(s.refPath(r.Key))
	if o == nil {
		return
	}
	delete(o.keys, r.Key)
	if len(o.keys) == 0 {
		delete(s.objects, r.SHA256)
		s.total -= o.size
		_ = os.Remove(s.path(r.SHA256)) // open readers keep their bytes
	}
}

func (s *store) evict(keep string) {
	for s.total > s.max {
		var oldest string
		for sum, o := range s.objects {
			if sum != keep && (oldest == "" || o.used.Before(s.objects[oldest].used)) {
				oldest = sum
			}
		}
		if oldest == "" {
			return
		}
		o := s.objects[oldest]
		for key := range o.keys {
			s.unlink(s.refs[key])
		}
	}
}

// open returns the stored file of a key if the digest promised for it is still want. The
// first time in a process the bytes are hashed again.
func (s *store) open(key, want string) (*blob, *ref, bool) {
	s.mu.Lock()
	r := s.refs[key]
	if r == nil { // another process may have stored it since
		if found, used, err := readRef(s.refPath(key)); err == nil && found.Key == key {
			s.link(found, used)
			r = found
		}
	}
	if r == nil || r.Want != want {
		s.mu.Unlock()
		return nil, nil, false
	}
	o := s.objects[r.SHA256]
	f, err := os.Open(s.path(r.SHA256))
	checked := o.checked
	s.mu.Unlock()
	ok := err == nil
	if ok && !checked {
		sum, n, err := hashFile(f) // without the lock: others need not wait for a large file
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		ok = err == nil && n == r.Size && sum == r.SHA256
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok {
		if f != nil {
			f.Close()
		}
		if s.objects[r.SHA256] == o { // not replaced meanwhile
			for k := range o.keys {
				s.unlink(s.refs[k])
			}
		}
		return nil, nil, false
	}
	o.checked = true
	now := s.now()
	if now.Sub(o.used) > time.Minute {
		_ = os.Chtimes(s.refPath(key), now, now) // only the order of eviction depends on it
	}
	o.used = now
	return &blob{f, r.Size, r.SHA256}, r, true
}

// get returns a key's file, fetching it at most once at a time. fetch writes the bytes and
// verifies them: what it accepts is stored, what it does not is gone.
func (s *store) get(ctx context.Context, key, want string, fetch func(context.Context, *os.File) error) (b *blob, hit bool, err error) {
	for {
		if b, _, ok := s.open(key, want); ok {
			return b, true, nil
		}
		s.mu.Lock()
		f := s.flight[key+"\x00"+want]
		mine := f == nil
		if mine {
			f = &fill{done: make(chan struct{})}
			s.flight[key+"\x00"+want] = f
			run, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
			go func() {
				defer cancel()
				f.err = guard(func() error { return s.fill(run, key, want, fetch) })
				s.mu.Lock()
				delete(s.flight, key+"\x00"+want)
				s.mu.Unlock()
				close(f.done)
			}()
		}
		s.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		if !mine && ofSession(f.err) {
			continue // another session's budget is not this one's
		}
		if f.err != nil {
			return nil, false, f.err
		}
		if b, _, ok := s.open(key, want); ok {
			return b, false, nil
		}
		if mine {
			return nil, false, bad(ReasonSize, "the store is too small for this file")
		}
	}
}

func (s *store) fill(ctx context.Context, key, want string, fetch func(context.Context, *os.File) error) error {
	tmp, err := s.scratch()
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already after a rename
	defer tmp.Close()
	if err := fetch(ctx, tmp); err != nil {
		return err
	}
	return s.adopt(ref{Key: key, Want: want}, tmp)
}

// adopt moves a finished file into the store under the reference.
func (s *store) adopt(r ref, tmp *os.File) error {
	sum, size, err := hashFile(tmp)
	if err != nil {
		return err
	}
	// No sync: what a crash leaves half written fails its hash on the first read after it.
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(s.path(sum)), 0o700); err != nil {
		return storeTrouble(err)
	}
	if err := os.Rename(tmp.Name(), s.path(sum)); err != nil {
		return storeTrouble(err)
	}
	r.SHA256, r.Size = sum, size
	s.link(&r, s.now())
	s.objects[sum].checked = true
	if err := s.writeRef(&r); err != nil {
		s.unlink(&r)
		return err
	}
	s.evict(sum)
	return nil
}

func (s *store) scratch() (*os.File, error) {
	f, err := os.CreateTemp(s.tmp, "fetch-*")
	if err != nil {
		return nil, storeTrouble(err)
	}
	return f, nil
}

func (s *store) writeRef(r *ref) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeAtomic(s.tmp, s.refPath(r.Key), b)
}

func writeAtomic(tmpDir, name string, b []byte) error {
	f, err := os.CreateTemp(tmpDir, "write-*")
	if err != nil {
		return storeTrouble(err)
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return storeTrouble(err)
	}
	return nil
}

func hashFile(f *os.File) (sum string, size int64, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", 0, storeTrouble(err)
	}
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		return "", 0, storeTrouble(err)
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

func storeTrouble(err error) error {
	return &refusal{status: 500, reason: ReasonUpstream, msg: "the mirror's store failed", err: err}
}
