package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Room says how much of the store's disk is free for us, and how large it is, in bytes.
func (s *Store) Room() (free, size int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.cfg.Dir, &st); err != nil {
		return 0, 0, fmt.Errorf("ask how much room there is: %w", err)
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

// short reports whether the disk has less room than it should.
func (s *Store) short(p Policy) bool {
	free, _, err := s.Room()
	return err == nil && free < p.Free
}

// limit is how large everything may be together, which takes total now.
func (s *Store) limit(p Policy, total int64, all []Kept) int64 {
	limit := int64(math.MaxInt64)
	if p.Disk > 0 {
		limit = p.Disk
	}
	if p.Free <= 0 && !p.Full {
		return limit
	}
	free, _, err := s.Room()
	if err != nil {
		s.cfg.Logger.Warn("the room on the disk is not known", "err", err)
		return limit
	}
	left := p.Free
	if p.Full { // what was there was not enough
		left = max(left, 2*free)
		for _, k := range all {
			left = max(left, 4*k.Bytes) // in the mirror, in the checkout's own packs and in its files
		}
	}
	return min(limit, total+free-left)
}

// maxRooms is how often room is made for one thing.
const maxRooms = 3

// withRoom does something for a repository that writes to the disk, and again when the disk was
// full and room could be made on it. The repository's mirror stays: without it more would have to
// be fetched.
func (s *Store) withRoom(ctx context.Context, repo string, do func() error) error {
	err := do()
	if full(err) && s.cfg.Full != nil {
		if err := s.hold(ctx, mirrorName(repo)); err != nil {
			return err
		}
		defer s.letGo(mirrorName(repo))
	}
	for range maxRooms {
		if !full(err) || s.cfg.Full == nil || ctx.Err() != nil {
			break
		}
		s.cfg.Logger.WarnContext(ctx, "the disk is full; what nobody uses is removed", "err", err)
		twins := s.dropTwins()
		gone, ferr := s.cfg.Full(ctx)
		if ferr != nil {
			s.cfg.Logger.WarnContext(ctx, "room could not be made as it should", "err", ferr)
		}
		if len(gone) == 0 && !twins {
			break
		}
		err = do()
	}
	if !full(err) {
		return err
	}
	room := ""
	if free, size, rerr := s.Room(); rerr == nil {
		room = fmt.Sprintf(" (%s of %s are free)", readable(free), readable(size))
	}
	return &task.Error{
		Class: task.Unavailable, Msg: "no room on the disk of " + s.cfg.Dir + room, Err: unix.ENOSPC,
		Fix: "make room on it, remove with `daybreak repo forget` what `daybreak repo ls --disk` lists and nobody needs, or set a smaller cache.disk",
	}
}

func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

func readable(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f kB", float64(n)/1e3)
}
