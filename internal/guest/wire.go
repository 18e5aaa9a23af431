package guest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ProtocolVersion is announced in the greeting; both ends must have the same.
const ProtocolVersion = 3

// Bounds of the wire. Both ends refuse a frame beyond them before they allocate for it.
const (
	maxHeader  = 4 << 10
	maxBody    = 256 << 10
	maxRequest = 96 << 20 // of a whole request: a Write of MaxWrite bytes in base64
	maxCalls   = 64       // requests in flight on one connection
	frameIntro = 8
)

// op names what a frame is about.
type op string

const (
	opHello   op = "hello"
	opPing    op = "ping"
	opCancel  op = "cancel"
	opExec    op = "exec"
	opWait    op = "wait"
	opKill    op = "kill"
	opRead    op = "read"
	opEdit    op = "edit"
	opWrite   op = "write"
	opSearch  op = "search"
	opSymbols op = "symbols"
	opFetch   op = "fetch"
	opReply   op = "reply"
)

// header is the JSON part of a frame. A message is one or more frames of one id; all but the
// last have More set.
type header struct {
	ID        uint64 `json:"id"`
	Op        op     `json:"op"`
	More      bool   `json:"more,omitempty"`
	Version   int    `json:"version,omitempty"`   // hello
	Error     string `json:"error,omitempty"`     // reply: why there is no result
	Truncated bool   `json:"truncated,omitempty"` // reply to fetch
}

// errFrame is the root of every violation of the framing.
var errFrame = errors.New("bad frame from the other side")

// appendFrame encodes one frame onto dst: four bytes of header length, four of body length,
// both big-endian, then header and body.
func appendFrame(dst []byte, h header, body []byte) ([]byte, error) {
	if len(body) > maxBody {
		return dst, fmt.Errorf("frame body of %d bytes is over the limit of %d", len(body), maxBody)
	}
	if len(h.Error) > maxHeader/4 {
		h.Error = string(bytes.ToValidUTF8([]byte(h.Error[:maxHeader/4]), nil))
	}
	head, err := json.Marshal(h)
	if err != nil {
		return dst, fmt.Errorf("encode frame header: %w", err)
	}
	if len(head) > maxHeader {
		return dst, fmt.Errorf("frame header of %d bytes is over the limit of %d", len(head), maxHeader)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(head)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, head...)
	return append(dst, body...), nil
}

// frameReader decodes frames into buffers it reuses: a frame is valid until the next call.
type frameReader struct {
	r     io.Reader
	intro [frameIntro]byte
	head  []byte
	body  []byte
}

// next returns the next frame. The error is io.EOF only at a frame's border.
func (f *frameReader) next() (header, []byte, error) {
	var h header
	if _, err := io.ReadFull(f.r, f.intro[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return h, nil, fmt.Errorf("%w: cut inside a frame", errFrame)
		}
		return h, nil, err
	}
	headLen := binary.BigEndian.Uint32(f.intro[:4])
	bodyLen := binary.BigEndian.Uint32(f.intro[4:])
	if headLen == 0 || headLen > maxHeader {
		return h, nil, fmt.Errorf("%w: header of %d bytes", errFrame, headLen)
	}
	if bodyLen > maxBody {
		return h, nil, fmt.Errorf("%w: body of %d bytes", errFrame, bodyLen)
	}
	f.head = grow(f.head, int(headLen))
	f.body = grow(f.body, int(bodyLen))
	if _, err := io.ReadFull(f.r, f.head); err != nil {
		return h, nil, fmt.Errorf("%w: cut inside a header", errFrame)
	}
	if _, err := io.ReadFull(f.r, f.body); err != nil {
		return h, nil, fmt.Errorf("%w: cut inside a body", errFrame)
	}
	d := json.NewDecoder(bytes.NewReader(f.head))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return h, nil, fmt.Errorf("%w: header is not what this version speaks", errFrame)
	}
	if d.InputOffset() != int64(headLen) {
		return h, nil, fmt.Errorf("%w: bytes after the header", errFrame)
	}
	return h, f.body, nil
}

func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// eachFrame splits a message into frames and hands their encodings to send.
func eachFrame(h header, body []byte, send func([]byte) error) error {
	for {
		part := body
		if len(part) > maxBody {
			part = part[:maxBody]
		}
		body = body[len(part):]
		one := h
		one.More = h.More || len(body) > 0
		enc, err := appendFrame(nil, one, part)
		if err != nil {
			return err
		}
		if err := send(enc); err != nil {
			return err
		}
		if len(body) == 0 {
			return nil
		}
	}
}
