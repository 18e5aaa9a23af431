package codesearch

import "math/bits"

// Rice's code (R. F. Rice, 1979) writes a number as its quotient by 2^k in ones that a zero ends,
// and k bits of remainder: the shortest prefix code for gaps that chance decides. Bits fill each
// byte from the lowest; the first byte of a list is k.

// maxQuotient bounds the ones of a number that is written: the code is for small ones.
const maxQuotient = 1 << 24

// riceBits is the k that suits the gaps of a list.
func riceBits(docs []uint32) uint {
	mean := uint64(docs[len(docs)-1]+1) / uint64(len(docs))
	if mean < 2 {
		return 0
	}
	return uint(bits.Len64(mean*7/10+1)) - 1
}

func appendRice(b []byte, docs []uint32) []byte {
	k := riceBits(docs)
	b = append(b, byte(k))
	var acc uint64
	var n uint
	put := func(v uint64, width uint) {
		acc |= v << n
		for n += width; n >= 8; n -= 8 {
			b = append(b, byte(acc))
			acc >>= 8
		}
	}
	next := uint32(0) // the smallest number that can follow
	for _, d := range docs {
		gap := uint64(d - next)
		for q := gap >> k; ; q -= 32 {
			if q < 32 {
				put(1<<q-1, uint(q)+1)
				break
			}
			put(1<<32-1, 32)
		}
		put(gap&(1<<k-1), k)
		next = d + 1
	}
	if n > 0 {
		b = append(b, byte(acc))
	}
	return b
}

// readRice decodes count numbers below limit; nil says that there are none such.
func readRice(out []uint32, b []byte, count, limit int) []uint32 {
	if len(b) == 0 || b[0] > 32 {
		return nil
	}
	k, b := uint(b[0]), b[1:]
	var acc uint64
	var n uint
	next := uint64(0)
	for range count {
		q := uint64(0)
		for {
			for n <= 56 && len(b) > 0 {
				acc |= uint64(b[0]) << n
				b, n = b[1:], n+8
			}
			ones := uint(bits.TrailingZeros64(^acc))
			if ones < n {
				q += uint64(ones)
				acc, n = acc>>(ones+1), n-ones-1
				break
			}
			if q += uint64(n); n == 0 || q > maxQuotient {
				return nil
			}
			acc, n = 0, 0
		}
		for n < k && len(b) > 0 {
			acc |= uint64(b[0]) << n
			b, n = b[1:], n+8
		}
		if n < k {
			return nil
		}
		next += q<<k | acc&(1<<k-1)
		acc, n = acc>>k, n-k
		if next >= uint64(limit) {
			return nil
		}
		out = append(out, uint32(next))
		next++
	}
	return out
}
