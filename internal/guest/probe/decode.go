package probe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

func newLines(in io.Reader) *bufio.Scanner {
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	return sc
}

func decodeLine(line []byte) (Observation, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	var o Observation
	if err := dec.Decode(&o); err != nil {
		return o, errors.New("not an observation")
	}
	if dec.More() {
		return o, errors.New("more than one value in a line")
	}
	o.Area, o.Name, o.Tried, o.Got = plain(o.Area, 40), plain(o.Name, 160), plain(o.Tried, 200), plain(o.Got, maxGot)
	if o.Area == "" || o.Name == "" {
		return o, errors.New("it has no name")
	}
	return o, nil
}

// plain makes a text fit for a terminal: no control and no invisible characters, at most n bytes.
func plain(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
	for len(s) > n {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}
