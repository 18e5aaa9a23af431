package codesearch

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestLower(t *testing.T) {
	all := make([]byte, 0, 512)
	for i := range 256 {
		all = append(all, byte(i), byte(255-i))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		b := bytes.Clone(all[:n])
		rnd.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
		want := bytes.Map(func(r rune) rune { return r }, nil)
		for _, c := range b {
			if 'A' <= c && c <= 'Z' {
				c += 32
			}
			want = append(want, c)
		}
		got := make([]byte, n)
		lower(got, b)
		if !bytes.Equal(got, want) {
			t.Fatalf("lower(%q) = %q", b, got)
		}
	}
}

func FuzzRice(f *testing.F) {
	f.Add([]byte{0, 1, 2, 200}, uint16(300))
	f.Fuzz(func(t *testing.T, gaps []byte, scale uint16) {
		// As a list: what is written is read again.
		var docs []uint32
		next := uint32(0)
		for _, g := range gaps {
			next += uint32(g) * uint32(scale)
			docs = append(docs, next)
			next++
		}
		if len(docs) > 0 {
			b := appendRice(nil, docs)
			got := readRice(nil, b, len(docs), int(next))
			if len(got) != len(docs) || got[len(got)-1] != docs[len(docs)-1] {
				t.Fatalf("%v became %v", docs, got)
			}
		}
		// As bytes from anywhere: no number is out of range.
		for _, n := range readRice(nil, gaps, 10, int(scale)) {
			if int(n) >= int(scale) {
				t.Fatalf("%d is not below %d", n, scale)
			}
		}
	})
}

func FuzzSegment(f *testing.F) {
	d := &draft{}
	d.add(scanned{path: "a", size: 3, tri: []trigram{1, 2, 3}})
	d.add(scanned{path: "b", size: 3, kind: kindOdd, tri: []trigram{2}})
	var w bytes.Buffer
	if _, err := d.encode(&w); err != nil {
		f.Fatal(err)
	}
	f.Add(w.Bytes(), uint32(2))
	f.Fuzz(func(t *testing.T, b []byte, tri uint32) {
		s, err := parseSegment(b)
		if err != nil {
			return
		}
		for i := range s.docs {
			_, _ = s.doc(i)
		}
		_, _ = s.find("a")
		if l, err := s.postingsOf(trigram(tri & 0xffffff)); err == nil {
			for _, n := range l {
				if int(n) >= s.docs {
					t.Fatalf("document %d of %d", n, s.docs)
				}
			}
		}
	})
}

// FuzzIndexBy holds the search for a literal against the standard library's.
func FuzzIndexBy(f *testing.F) {
	f.Add([]byte("a needle in a hay of needles"), []byte("needles"))
	f.Add(bytes.Repeat([]byte("xx"), 300), []byte("xxy"))
	f.Add(append(bytes.Repeat([]byte("zx"), 300), "zz"...), []byte("zz"))
	f.Fuzz(func(t *testing.T, hay, l []byte) {
		want := bytes.Index(hay, l)
		for by := range max(1, len(l)) {
			if got := indexBy(hay, l, by); got != want {
				t.Fatalf("%q in %q by %d: %d, want %d", l, hay, by, got, want)
			}
		}
		if by := rarest(l); len(l) > 0 && (by < 0 || by >= len(l)) {
			t.Fatalf("%q: %d", l, by)
		}
	})
}
