package scripted

import (
	"hash/maphash"
	"sync"
)

// Usage counts the token classes of one reply. Input excludes both cache classes.
type Usage struct {
	Input, Output, CacheRead, CacheWrite int64
}

// segment is one part of the input. mark is a cache breakpoint after it.
type segment struct {
	data []byte
	mark bool
}

const (
	lookback   = 20      // blocks before a breakpoint in which Anthropic looks for an entry
	chunk      = 4 * 128 // bytes; OpenAI caches prefixes in steps of 128 tokens
	maxEntries = 1 << 20
)

type entry struct {
	sum    uint64
	length int
}

// cache simulates the providers' prompt caches: it knows prefixes by their hash.
type cache struct {
	seed maphash.Seed
	mu   sync.Mutex
	seen map[entry]struct{}
}

func newCache() *cache {
	return &cache{seed: maphash.MakeSeed(), seen: map[entry]struct{}{}}
}

func (c *cache) add(entries []entry) {
	if len(c.seen)+len(entries) > maxEntries {
		clear(c.seen)
	}
	for _, e := range entries {
		c.seen[e] = struct{}{}
	}
}

// marked is Anthropic's way: entries are written at breakpoints, and read at the longest
// prefix that ends at most lookback blocks before one.
func (c *cache) marked(segs []segment) Usage {
	var h maphash.Hash
	h.SetSeed(c.seed)
	ends := make([]entry, len(segs))
	total := 0
	for i, s := range segs {
		_, _ = h.Write(s.data)
		total += len(s.data)
		ends[i] = entry{h.Sum64(), total}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	read, write := 0, 0
	var wrote []entry
	for i, s := range segs {
		if !s.mark {
			continue
		}
		write = ends[i].length
		wrote = append(wrote, ends[i])
		for j := i; j >= 0 && j > i-lookback; j-- {
			if _, hit := c.seen[ends[j]]; hit {
				read = max(read, ends[j].length)
				break
			}
		}
	}
	c.add(wrote)
	return Usage{Input: tokens(total) - tokens(write), CacheRead: tokens(read), CacheWrite: tokens(write) - tokens(read)}
}

// prefix is OpenAI's way: any prefix in whole steps, writes are free.
func (c *cache) prefix(segs []segment) Usage {
	var h maphash.Hash
	h.SetSeed(c.seed)
	var ends []entry
	total, fill := 0, 0
	for _, s := range segs {
		data := s.data
		total += len(data)
		for len(data) > 0 {
			n := min(chunk-fill, len(data))
			_, _ = h.Write(data[:n])
			data, fill = data[n:], fill+n
			if fill == chunk {
				ends, fill = append(ends, entry{h.Sum64(), (len(ends) + 1) * chunk}), 0
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	read := 0
	for _, e := range ends {
		if _, hit := c.seen[e]; !hit {
			break
		}
		read = e.length
	}
	c.add(ends)
	return Usage{Input: tokens(total) - tokens(read), CacheRead: tokens(read)}
}

func tokens(bytes int) int64 { return int64(bytes+3) / 4 }
